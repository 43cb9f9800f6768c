// SPDX-License-Identifier: Apache-2.0
//
// A channel is the lane's state with one peer. It points to the oldest operation that still
// receives from that peer and to the oldest that still sends, so a pass looks at channels and not
// at operations.
#include "collectives/lanes/scheduled_lane.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "collectives/operation/recorder.h"

namespace rondo::lanes {

namespace {

constexpr int frames_in_a_row = 64;  // to one peer, before another gets its turn

operation::Frame frame_of(const operation::ScheduledOperation& operation,
                          const operation::FramePlace& place) {
  return {operation.signature,
          operation.number,
          static_cast<std::uint16_t>(place.segment),
          static_cast<std::uint16_t>(place.frame),
          0,
          operation.input_scale};
}

}  // namespace

ScheduledLane::ScheduledLane(const Options& options, operation::LaneCalls& calls,
                             operation::OwnerHost& host)
    : options_(options),
      calls_(calls),
      host_(host),
      channels_(static_cast<std::size_t>(options.size)),
      losses_(options.rank, options.size) {
  senders_.reserve(channels_.size());
  for (int peer = 0; peer < options.size; ++peer) {
    channel(peer).peer = peer;
    channel(peer).queued.reserve(16);
  }
}

ScheduledLane::Channel& ScheduledLane::channel(transports::Link& link) noexcept {
  Channel& c = channel(link.peer());
  c.link = &link;
  return c;
}

void ScheduledLane::begin(operation::ScheduledOperation& operation) {
  operation.unheard = operation.run.program().tellers();
  running_.push(operation);
  if (operation.run.staged())
    static_cast<Staging&>(*operation.memory).begin(operation);
  else if (operation.run.waits_for_staging())
    ++staging_waiters_;
  bool any_lost = false;
  for (const schedules::ProgramPeer& peer : operation.run.program().peers()) {
    Channel& c = channel(peer.rank);
    any_lost |= c.lost;
    if (c.receiving == nullptr) {
      c.receiving = &operation;
      settle_receiving(c);
    }
    if (c.sending == nullptr) {
      c.sending = &operation;
      senders_.push_back(&c);
      settle_sending(c);
    }
  }
  if (any_lost) check(base::Clock::now());
}

void ScheduledLane::add(Staging& staging) {
  if (std::ranges::find(stagings_, &staging) == stagings_.end()) stagings_.push_back(&staging);
}

void ScheduledLane::finish(operation::ScheduledOperation& operation) {
  running_.remove(operation);
  if (operation.ends_in_memory) return;
  take_back_staging(operation);
  calls_.ended(operation);
  host_.finished(operation);
}

void ScheduledLane::clear() noexcept {
  running_.clear();
  staging_owner_ = nullptr;
  staging_waiters_ = 0;
  senders_.clear();
  for (Channel& c : channels_) {
    c.receiving = c.sending = nullptr;
    c.queued.clear();
    c.refused.reset();
    c.arriving.reset();
  }
  losses_.begin_check();
}

void ScheduledLane::settle_receiving(Channel& c) noexcept {
  while (c.receiving != nullptr) {
    c.receiving_index = c.receiving->run.program().peer_index(c.peer);
    if (c.receiving_index >= 0 && !c.receiving->run.peer(c.receiving_index).receives.done()) return;
    c.receiving = running_.after(*c.receiving);
  }
}

void ScheduledLane::settle_sending(Channel& c) {
  while (c.sending != nullptr) {
    c.sending_index = c.sending->run.program().peer_index(c.peer);
    if (c.sending_index >= 0 && !c.sending->run.peer(c.sending_index).sends.done()) return;
    c.sending = running_.after(*c.sending);
  }
  senders_.erase(std::find(senders_.begin(), senders_.end(), &c));
}

// True when an operation has got the memory: TwoLevelOwner may wait for that.
bool ScheduledLane::grant_staging() {
  if (staging_waiters_ == 0 || staging_owner_ != nullptr) return false;
  staging_owner_ = running_.find([](const operation::ScheduledOperation& operation) {
    return !operation.run.staged() && operation.run.waits_for_staging();
  });
  if (staging_owner_ == nullptr) return false;
  operation::Run& run = staging_owner_->run;
  if (staging_.size() < run.staging_bytes_needed()) staging_.resize(run.staging_bytes_needed());
  run.give_staging(staging_.data());
  --staging_waiters_;
  return true;
}

// Only the last copy completes a staged operation, so links never do.
bool ScheduledLane::advance_stagings() {
  bool moved = false;
  for (Staging* const staging : stagings_) {
    if (staging->idle()) continue;
    moved = staging->advance() || moved;
    if (staging->take_enqueued()) host_.enqueued();
    while (operation::ScheduledOperation* const done = staging->take_complete()) finish(*done);
  }
  return moved;
}

bool ScheduledLane::run() {
  bool moved = grant_staging();
  moved = advance_stagings() || moved;
  for (std::size_t i = 0; i < senders_.size();) {
    Channel* const channel = senders_[i];
    moved |= send_ready(*channel);
    // It may have taken the channel out of the list.
    if (i < senders_.size() && senders_[i] == channel) ++i;
  }
  return moved;
}

transports::HeaderBytes ScheduledLane::header_of(const operation::ScheduledOperation& operation,
                                                 const operation::Outgoing& outgoing) const {
  operation::Frame frame = frame_of(operation, outgoing.place);
  if (options_.checksum && !outgoing.payload.empty())
    frame.checksum = base::crc32c(outgoing.payload);
  return operation::encode(frame);
}

bool ScheduledLane::send_ready(Channel& c) {
  bool moved = false;
  for (int i = 0; i < frames_in_a_row && c.sending != nullptr && !c.lost; ++i) {
    operation::ScheduledOperation& operation = *c.sending;
    const int index = c.sending_index;
    const auto outgoing = operation.run.sendable(index);
    if (!outgoing) break;
    if (c.link == nullptr) c.link = &host_.link(c.peer, calls_.lane());
    if (!c.refused) c.refused = header_of(operation, *outgoing);
    if (operation.times.sent == base::TimePoint{}) operation.times.sent = calls_.looked();
    const transports::Send result = c.link->send(*c.refused, outgoing->payload);
    if (result == transports::Send::full) break;
    c.refused.reset();
    moved = true;
    ++traffic_.frames_sent;
    traffic_.bytes_sent += outgoing->payload.size();
    const operation::FramePlace place = operation.run.send_started(index);
    if (result != transports::Send::queued) operation.run.payload_released(place);
    if (result == transports::Send::done) {
      operation.run.send_finished(place);
    } else {
      c.queued.push_back({&operation, place, result == transports::Send::queued});
    }
    settle_sending(c);
    if (operation.run.complete()) finish(operation);
  }
  return moved;
}

std::optional<transports::Receive> ScheduledLane::expected(transports::Link& link,
                                                           std::size_t ahead) {
  Channel& c = channel(link);
  if (c.receiving == nullptr) return std::nullopt;
  return c.receiving->run.receivable(c.receiving_index, ahead);
}

transports::Header ScheduledLane::arrived(transports::Link& link,
                                          const transports::HeaderBytes& header) {
  Channel& c = channel(link);
  auto frame = operation::decode(header);
  if (!frame) {
    corrupt(c, "a frame header is damaged");
    return transports::Header::refuse;
  }
  if (c.receiving == nullptr && frame->number > calls_.begun()) {
    c.held = frame;
    any_held_ = true;
    return transports::Header::hold;
  }
  if (!check_frame(c, *frame)) return transports::Header::refuse;
  show_header(c);
  if (!c.receiving->run.receivable(c.receiving_index)) return transports::Header::hold;
  c.held.reset();
  c.arriving = c.last = frame;
  c.checksum = 0;
  return transports::Header::accept;
}

std::size_t ScheduledLane::data(transports::Link& link, std::span<const std::byte> view) {
  Channel& c = channel(link);
  if (c.receiving == nullptr) return view.size();  // after clear() the rest of a frame is dropped
  const std::size_t used =
      c.receiving->run.consume(c.receiving_index, view, c.arriving->input_scale);
  if (options_.checksum) c.checksum = base::crc32c(view.first(used), c.checksum);
  return used;
}

void ScheduledLane::received(transports::Link& link) {
  Channel& c = channel(link);
  if (c.receiving == nullptr) return;
  operation::ScheduledOperation& operation = *c.receiving;
  const std::uint32_t checksum = c.arriving->checksum;
  c.arriving.reset();
  const std::size_t bytes = operation.run.bytes_of(operation.run.next_receive(c.receiving_index));
  if (bytes != 0 && !check_payload(c, checksum))
    return corrupt(c, "the checksum of a payload does not match");
  ++traffic_.frames_received;
  traffic_.bytes_received += bytes;
  c.bytes += bytes;
  c.last_time = operation.times.arrived = calls_.looked();
  calls_.moved();
  operation.run.received(c.receiving_index);
  settle_receiving(c);
  if (operation.run.complete()) finish(operation);
}

void ScheduledLane::sent(transports::Link& link) {
  Channel& c = channel(link);
  if (c.queued.empty()) return;
  const QueuedSend send = c.queued.front();
  c.queued.erase(c.queued.begin());
  if (send.borrowed) send.operation->run.payload_released(send.place);
  send.operation->run.send_finished(send.place);
  if (send.operation->run.complete()) finish(*send.operation);
}

// A header tells it, before the payload and before there is room for that.
void ScheduledLane::show_header(Channel& c) noexcept {
  operation::ScheduledOperation& operation = *c.receiving;
  if (c.heard == operation.number) return;
  c.heard = operation.number;
  c.bytes = 0;
  if (operation.run.program().peer(c.receiving_index).tells && --operation.unheard == 0)
    calls_.watch().heard_all(operation);
}

operation::Standing ScheduledLane::standing(const operation::Operation& operation,
                                            bool wants_only) {
  const auto& scheduled = static_cast<const operation::ScheduledOperation&>(operation);
  if (scheduled.unheard == 0) return {};
  operation::Standing result{WaitCause::ranks};
  if (scheduled.unheard > 1 || !wants_only) return result;
  const schedules::Program& program = scheduled.run.program();
  for (const schedules::ProgramPeer& peer : program.peers())
    if (peer.tells && channel(peer.rank).heard != operation.number) result.only = peer.rank;
  // Where all hear all, one of them warns.
  result.warns =
      program.tellers() + 1 != channels_.size() || options_.rank == (result.only == 0 ? 1 : 0);
  return result;
}

// Compares the frame with the one that must come next.
bool ScheduledLane::check_frame(const Channel& c, const operation::Frame& frame) {
  const operation::ScheduledOperation* const mine = c.receiving;
  if (mine == nullptr || frame.number != mine->number || frame.signature != mine->signature) {
    host_.suspect(calls_.disagreement(c.peer, mine, frame, c.link));
    return false;
  }
  const operation::FramePlace place = mine->run.next_receive(c.receiving_index);
  if (frame.segment == static_cast<std::uint16_t>(place.segment) &&
      frame.frame == static_cast<std::uint16_t>(place.frame))
    return true;
  corrupt(c, fmt::format("frame {} of segment {} came out of order", frame.frame, frame.segment));
  return false;
}

bool ScheduledLane::check_payload(const Channel& c, std::uint32_t checksum) const {
  if (!options_.checksum) return true;
  const operation::Run& run = c.receiving->run;
  const bool borrowed = run.receivable(c.receiving_index)->destination == nullptr;
  return checksum == (borrowed ? c.checksum : base::crc32c(run.placed(c.receiving_index)));
}

// A held header is judged once this rank's call of that number has begun. It may be another call,
// one that needs no frames from that peer: then no link would show the mismatch.
void ScheduledLane::check_held() {
  if (!any_held_) return;
  any_held_ = false;
  for (const Channel& c : channels_) {
    if (!c.held) continue;
    if (c.receiving == nullptr && c.held->number <= calls_.begun())
      host_.suspect(calls_.disagreement(c.peer, nullptr, *c.held, c.link));
    else
      any_held_ = true;
  }
}

void ScheduledLane::corrupt(const Channel& c, std::string_view what) {
  host_.suspect(losses_.failure(Errc::corrupt, c.peer, c.link, what));
}

void ScheduledLane::lost(transports::Link& link, std::error_code code, std::string_view what,
                         bool clean, base::TimePoint now) {
  Channel& c = channel(link);
  c.lost = true;
  losses_.lost(link, code, what, clean, now);
  check_loss(c, now);
}

void ScheduledLane::check(base::TimePoint now) {
  losses_.begin_check();
  for (const int peer : losses_.peers()) check_loss(channel(peer), now);
}

void ScheduledLane::check_loss(const Channel& c, base::TimePoint now) {
  if (c.receiving == nullptr && c.sending == nullptr) return;
  if (auto failure = losses_.needed(c.peer, {}, now)) host_.suspect(std::move(*failure));
}

void ScheduledLane::append_awaited(const operation::Operation& operation,
                                   operation::Awaited& awaited) const {
  const auto* const o = running_.find(
      [&](const operation::ScheduledOperation& running) { return &running == &operation; });
  if (o == nullptr) return;
  awaited.device = o->awaited_mark();
  if (!awaited.device.empty()) return;
  const auto& peers = o->run.program().peers();
  for (std::size_t i = 0; i < peers.size(); ++i)
    if (!o->run.peer(static_cast<int>(i)).receives.done()) awaited.ranks.push_back(peers[i].rank);
}

namespace {

std::string text_of(std::uint64_t number, std::uint64_t segment, std::uint64_t frame) {
  return fmt::format("#{} segment {} frame {}", number, segment, frame);
}

}  // namespace

void ScheduledLane::append_views(std::vector<operation::PeerView>& views) const {
  for (const Channel& c : channels_) {
    if (c.link == nullptr && c.receiving == nullptr && c.sending == nullptr) continue;
    operation::PeerView view;
    view.lane = calls_.lane();
    view.rank = c.peer;
    if (c.link != nullptr) view.address = c.link->describe();
    if (c.receiving != nullptr) {
      const operation::FramePlace next = c.receiving->run.next_receive(c.receiving_index);
      view.expected = text_of(c.receiving->number, next.segment, next.frame);
    }
    if (const auto& seen = c.held ? c.held : c.last)
      view.seen = text_of(seen->number, seen->segment, seen->frame);
    if (c.receiving == nullptr || c.receiving->number == c.heard) view.bytes = c.bytes;
    view.queued = c.queued.size();
    view.heard = c.last_time;
    views.push_back(std::move(view));
  }
}

operation::Traffic ScheduledLane::traffic() const noexcept {
  operation::Traffic result = traffic_;
  result.staging_bytes = staging_.size();
  return result;
}

}  // namespace rondo::lanes

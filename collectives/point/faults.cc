// SPDX-License-Identifier: Apache-2.0
//
// Handles peers that are lost or have left, and says in messages what a transfer waits for.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "collectives/operation/recorder.h"
#include "collectives/point/point.h"
#include "collectives/schedules/call.h"

namespace rondo::point {

namespace {

constexpr std::size_t most_named = 8, most_senders = 8;

std::string progress_text(const Request& request) {
  return fmt::format("{} of {}", base::describe_bytes(request.offset),
                     base::describe_bytes(request.bytes));
}

// The receive whose message is arriving as one frame. Null when there is none, or when the message
// has no receive yet.
const Request* arriving_receive(const PointPeer& peer) {
  if (!peer.arriving || peer.frame.kind != PointKind::message) return nullptr;
  return peer.request != nullptr ? peer.request : peer.arrival->receiver;
}

// Whether the transfer waits for copies of its device only.
bool waits_for_copies(const Request& request) noexcept {
  if (request.other_end != nullptr) return true;
  if (request.staging == nullptr) return false;
  if (!request.sending) return request.handed;
  return request.load_end > request.offset && !request.handed && loaded_piece(request) == nullptr;
}

std::string device_of(const Request& request) {
  const Request& staged = request.staging != nullptr ? request : *request.other_end;
  return staged.staging->name();
}

// Whether the header of the receive's next frame waits for a slot.
bool is_held(const PointPeer& peer, const Request& request) noexcept {
  if (!peer.held) return false;
  return peer.frame.kind == PointKind::message ? request.key == peer.frame.key
                                               : request.message == peer.frame.message;
}

// Calls the function once with each transfer of the operation that has not ended.
template <class Function>
void for_each_open(const PointPeer& peer, const operation::Operation& operation,
                   Function function) {
  const auto look = [&](const Request* request) {
    if (request != nullptr && request->operation == &operation) function(*request);
  };
  const auto look_at_all = [&](const base::Fifo<Request>& chain) {
    for (const Request* request = chain.first(); request != nullptr; request = request->next)
      look(request);
  };
  for (const base::Fifo<Request>& chain : peer.posted) look_at_all(chain);
  for (const base::Fifo<Request>* chain :
       {&peer.waiting, &peer.announced, &peer.flowing, &peer.matched, &peer.granted, &peer.storing})
    look_at_all(*chain);
  for (const Request* p = peer.storing.first(); p != nullptr; p = p->next) look(p->other_end);
  look(arriving_receive(peer));
  // A frame that the link has taken whole is in no chain. It may have several frames under way.
  for (auto frame = peer.flying.begin(); frame != peer.flying.end(); ++frame)
    if (frame->request != nullptr && frame->request->handed &&
        std::none_of(peer.flying.begin(), frame,
                     [&](const Flight& before) { return before.request == frame->request; }))
      look(frame->request);
  for (const base::Fifo<Arrival>& chain : peer.arrivals)  // messages to this rank itself
    for (const Arrival* a = chain.first(); a != nullptr; a = a->next) look(a->sender);
}

// Names the tags of messages that the peer has sent and that no receive has taken.
std::string tags_at_hand(const PointPeer& peer, std::string_view who) {
  std::set<std::uint32_t> tags;
  for (const base::Fifo<Arrival>& chain : peer.arrivals)
    for (const Arrival* a = chain.first(); a != nullptr; a = a->next)
      if (a->frame.key.space == 0) tags.insert(a->frame.key.tag);
  if (tags.empty()) return {};
  std::string text =
      fmt::format("; {} has sent messages with tag{} ", who, tags.size() == 1 ? "" : "s");
  std::size_t named = 0;
  for (const std::uint32_t tag : tags) {
    if (named++ == most_named) break;
    text += fmt::format("{}{}", named == 1 ? "" : ", ", tag);
  }
  if (tags.size() > most_named) text += " and others";
  return text + " that are not received here";
}

// Returns what the transfer waits for on this rank's own device; else empty.
std::string missing_copies(const PointPeer& peer, const Request& request) {
  if (waits_for_copies(request)) {
    return fmt::format("{} has not yet copied the data of {}", device_of(request),
                       request.key.space != 0 ? "all_to_all_v"
                       : request.sending      ? "send"
                                              : "receive");
  }
  if (request.staging == nullptr) return {};
  const bool loads = request.slots.empty() &&
                     (peer.flowing.contains(request) || (peer.waiting.first() == &request &&
                                                         request.bytes <= transports::eager_bytes));
  if (request.sending ? loads : is_held(peer, request))
    return "other messages use all staging memory for messages of " + device_of(request);
  return {};
}

// Returns what the transfer waits for. rank: this one.
std::string missing_for(int rank, const PointPeer& peer, const Request& request) {
  const std::string other =
      request.key.space != 0
          ? "all_to_all_v"
          : fmt::format("{} with tag {}", request.sending ? "receive" : "send", request.key.tag);
  if (std::string text = missing_copies(peer, request); !text.empty()) return text;
  if (request.handed)
    return fmt::format("rank {} has not read all that rank {} has sent for {}", peer.rank, rank,
                       other);
  if (&request == arriving_receive(peer))
    return fmt::format("rank {} has sent the header of {}, and not yet all of its {}", peer.rank,
                       other, base::describe_bytes(request.bytes));
  if (request.sending && (request.offset > 0 || peer.flowing.contains(request)))
    return fmt::format("rank {} has taken {} of {}", peer.rank, progress_text(request), other);
  if (request.sending && peer.waiting.contains(request))
    return fmt::format("rank {} takes no more frames from rank {}", peer.rank, rank);
  if (!request.sending && peer.granted.contains(request))
    return fmt::format("rank {} has sent {} of {}", peer.rank, progress_text(request), other);
  if (!request.sending && peer.matched.contains(request))
    return fmt::format("rank {} has announced {} and was not asked for it yet", peer.rank, other);
  std::string text = fmt::format("rank {} has not called {}", peer.rank, other);
  if (!request.sending) text += tags_at_hand(peer, "it");
  return text;
}

}  // namespace

bool Point::agree(const PointPeer& peer, const Request& request, const PointFrame& frame) {
  if (frame.count == request.count && frame.type == request.type) return true;
  host_.suspect(
      {Errc::mismatch,
       fmt::format(
           "rank {} called {} where rank {} called {}", peer.rank,
           describe_transfer(true, frame.call, frame.count, frame.type, options_.rank, frame.key),
           options_.rank,
           describe_transfer(false, request.operation->number, request.count, request.type,
                             request.from_any ? any_rank : peer.rank, request.key)),
       -1,
       {peer.rank},
       -1,
       peer.link->describe()});
  return false;
}

void Point::lost(transports::Link& link, std::error_code code, std::string_view what, bool clean,
                 base::TimePoint now) {
  PointPeer& from = peer(link.peer());
  from.link = &link;
  from.lost = true;
  losses_.lost(link, code, what, clean, now);
  check_peer(from, now);
  check_any(now);
}

void Point::peer_left(int rank, base::TimePoint now) {
  PointPeer& gone = peer(rank);
  gone.left = true;
  losses_.left(rank, now);
  check_peer(gone, now);
  check_any(now);
}

void Point::check(base::TimePoint now) {
  losses_.begin_check();
  for (const int rank : losses_.peers()) check_peer(peer(rank), now);
  check_any(now);
}

// Frames that a peer sent before it left or closed its link may still be read.
void Point::check_peer(PointPeer& peer, base::TimePoint now) {
  if (peer.pending == 0) return;
  const operation::Losses::Need need{
      .sends = !peer.waiting.empty() || !peer.announced.empty() || !peer.flowing.empty(),
      .linked = peer.link != nullptr};
  if (auto failure = losses_.needed(peer.rank, need, now)) host_.suspect(std::move(*failure));
}

// A lost rank ends a receive from any rank, because it might have sent the message. A rank that has
// left in order does not, as long as there is another.
void Point::check_any(base::TimePoint now) {
  if (!matching_.any_waits()) return;
  for (const int rank : losses_.peers()) {
    PointPeer& other = peer(rank);
    if (other.gone) continue;
    auto failure =
        losses_.needed(rank, {.linked = other.link != nullptr, .replaceable = true}, now);
    if (!failure) continue;
    if (failure->code != Errc::peer_left) return host_.suspect(std::move(*failure));
    other.gone = true;
    ++gone_;
  }
  if (gone_ == 0 || gone_ + 1 < peers_.size()) return;
  const std::string_view what = gone_ == 1 ? "has left: it destroyed its communicator"
                                           : "have left: they destroyed their communicators";
  host_.suspect({Errc::peer_left,
                 fmt::format("{} {}, and no other rank can send to rank {}",
                             base::list_of_ranks(losses_.peers()), what, options_.rank),
                 -1, losses_.peers()});
}

std::string Point::late_text(const operation::Operation& operation) const {
  return fmt::format("not done within {:.4g} s on rank {}: {}",
                     std::chrono::duration<double>(operation.time_limit).count(), options_.rank,
                     missing(operation));
}

operation::Traffic Point::traffic() const noexcept {
  operation::Traffic result = traffic_;
  result.staging_bytes = matching_.memory();
  return result;
}

// Numbers are those of messages, in the order in which the sender called.
void Point::append_views(std::vector<operation::PeerView>& views) const {
  for (const auto& p : peers_) {
    if (!p) continue;
    operation::PeerView view;
    view.lane = transports::Lane::messages;
    view.rank = p->rank;
    if (p->link != nullptr) view.address = p->link->describe();
    if (p->pending != 0)
      view.expected = fmt::format("{} messages open, {} sent and {} announced so far", p->pending,
                                  p->messages_sent, p->announced_count);
    if (p->messages_received != 0) view.seen = fmt::format("message {}", p->messages_received);
    for (const Request* r = p->granted.first(); r != nullptr; r = r->next) view.bytes += r->offset;
    view.queued = p->flying.size();
    view.heard = p->heard;
    views.push_back(std::move(view));
  }
}

std::string Point::missing(const operation::Operation& operation) const {
  std::string text;
  std::size_t named = 0;
  for (const auto& p : peers_) {
    if (!p) continue;
    for_each_open(*p, operation, [&](const Request& request) {
      if (named++ < most_named)
        text += (text.empty() ? "" : "; ") + missing_for(options_.rank, *p, request);
    });
  }
  if (named > most_named) text += fmt::format("; and {} more", named - most_named);
  if (const Request* const request = matching_.any_of(operation))
    text += missing_from_any(*request);
  return text;
}

std::string Point::missing_from_any(const Request& request) const {
  std::string text =
      fmt::format("no rank has called send with tag {} to rank {}", request.key.tag, options_.rank);
  std::size_t named = 0;
  std::vector<int> left;
  for (const auto& p : peers_) {
    if (!p) continue;
    if (p->left) left.push_back(p->rank);
    if (named == most_senders) continue;
    const std::string tags = tags_at_hand(*p, fmt::format("rank {}", p->rank));
    named += tags.empty() ? 0 : 1;
    text += tags;
  }
  if (!left.empty())
    text +=
        fmt::format("; {} {} left", base::list_of_ranks(left), left.size() == 1 ? "has" : "have");
  return text;
}

void Point::append_awaited(const operation::Operation& operation,
                           operation::Awaited& awaited) const {
  if (matching_.any_of(operation) != nullptr) {
    for (int rank = 0; rank < options_.size; ++rank) {
      const auto& p = peers_[static_cast<std::size_t>(rank)];
      if (rank != options_.rank && !(p && p->left)) awaited.ranks.push_back(rank);
    }
    return;
  }
  for (const auto& p : peers_) {
    if (!p) continue;
    bool any = false;
    for_each_open(*p, operation, [&](const Request& request) {
      if (waits_for_copies(request))
        awaited.device = device_of(request) + ", which has not yet done its copies";
      else
        any = true;
    });
    if (any && p->rank != options_.rank) awaited.ranks.push_back(p->rank);
  }
}

}  // namespace rondo::point

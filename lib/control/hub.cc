// SPDX-License-Identifier: Apache-2.0
//
// Rank 0's end of the control plane. It turns the reports of all ranks into one cause: the first
// one, unless rank 0 did not run for some time and another rank has concluded without it. After a
// missed deadline it asks every rank where it stands, one question at a time.
#include <algorithm>

#include "base/text.h"
#include "lib/control/endpoint.h"
#include "lib/control/late_ranks.h"
#include "lib/wire/join_report.h"

namespace rondo::control {
namespace {

// How long rank 0 waits for the states of all ranks. A rank that has not answered by then counts as
// one that does not answer.
constexpr milliseconds query_time{1000};
// Rank 0 leaves last: it asks again and again whether a rank may still need it, with growing
// pauses.
constexpr milliseconds first_look{5}, longest_look{100};
// Most bytes that rank 0 keeps for a rank that does not read.
constexpr std::size_t most_unsent_bytes = std::size_t{8} << 20;
constexpr std::size_t most_heard_bytes = 300;  // of each rank

struct Peer {
  explicit Peer(wire::Stream s) : stream(std::move(s)) {}

  wire::Stream stream;
  bool left = false;     // in order
  bool gone = false;     // the connection has ended
  bool ready = false;    // its connect() has done its part
  std::size_t told = 0;  // bytes of leavings_ that were sent to it
  bool known = false;
  operation::RankStatus status;  // if known
  std::string heard;             // the newest that it has told; empty: its status, if known
  std::uint64_t asked = 0, answered = 0;  // its newest query, and the newest that it answered
};

int rank_of(std::size_t peer) {
  return static_cast<int>(peer) + 1;
}

// "all_reduce #41 (64 MiB f32 sum) under way, waits for rank 2; finished #40"
std::string describe(const operation::RankStatus& status) {
  std::vector<std::string> parts;
  for (const auto* const lane : {&status.lanes[0], &status.lanes[1], &status.messages}) {
    if (!lane->current.empty())
      parts.push_back(lane->current + " under way" +
                      (lane->waiting_for.empty()
                           ? ""
                           : ", waits for " + base::list_of_ranks(lane->waiting_for)) +
                      (lane->device.empty() ? "" : ", waits for " + lane->device));
    if (lane->finished != 0)
      parts.push_back((lane == &status.lanes[1] ? "finished urgent #" : "finished #") +
                      std::to_string(lane->finished));
  }
  return parts.empty() ? "has called nothing yet" : base::join(parts, "; ");
}

Priority other_lane(Priority lane) {
  return lane == Priority::bulk ? Priority::urgent : Priority::bulk;
}

// How serious a question is: it stalls, it waits for long, its deadline has passed.
int weight(const wire::DeadlineMessage& deadline) {
  return deadline.deadline_ns == 0 ? 0 : deadline.warning ? 1 : 2;
}

// The rank-0 part of an Endpoint: connection i is that of rank i + 1.
class Hub {
 public:
  Hub(Answers& answers, std::vector<wire::Stream> streams, transports::Blob shared)
      : shared_(std::move(shared)), answers_(answers) {
    peers_.reserve(streams.size());
    for (wire::Stream& stream : streams) peers_.emplace_back(std::move(stream));
    leavings_.reserve(peers_.size() * wire::encode(wire::LeftMessage{}).size());
  }

  operation::Failure tell_alone(const std::string& why) {
    operation::Failure failure{Errc::system, wire::could_not_connect(0, why), -1, {0}, 0};
    send_to_all(wire::VerdictMessage{failure});
    flush(all_streams());
    return failure;
  }

  std::string too_late() const { return "rank 0 was too busy to finish connect() by its deadline"; }

  void watch(std::vector<pollfd>& entries) const {
    for (const Peer& peer : peers_)
      entries.push_back({peer.gone ? -1 : peer.stream.descriptor(), peer.stream.events(), 0});
  }

  base::TimePoint due() const {
    return std::min({ready_until_, inquiry_ ? inquiry_->until : base::TimePoint::max(),
                     leave_ ? next_look_ : base::TimePoint::max(),
                     loss_ ? loss_->due : base::TimePoint::max()});
  }

  void turn() {
    tell_leavings();
    look_after_ready();
    conclude_inquiry();
    look_after_loss();
    look_after_leave();
    for (std::size_t peer = 0; peer < peers_.size(); ++peer)
      if (peers_[peer].stream.ended()) listen_to(peer);
    decide();
  }

  void listen_to(std::size_t index) {
    Peer& peer = peers_[index];
    if (peer.gone) return;
    exchange(peer.stream, [&](const auto& message) { received(index, message); });
    if (peer.stream.ended()) lose(index);
  }

  void handle(const StartCommand& command) { events_.start(*command.client); }
  void handle(const wire::ReportMessage& message) { judge(message.failure, 0); }
  void handle(const wire::DeadlineMessage& message) { inquire(message, 0); }
  void handle(const LeaveCommand& command) {
    leave_ = command;
    wire::LeftMessage message;
    std::ranges::copy(command.finished, message.finished);
    send_to_all(message);
    next_look_ = base::Clock::now();
  }
  void handle(const ReadyCommand& command) {
    ready_ = true;
    ready_until_ = command.until;
    go_when_all_are_ready();
  }
  void handle(const wire::ConstantsMessage& message) { send_to_all(message); }

  void finish() {
    tell_leavings();
    flush(all_streams());
  }

 private:
  struct Inquiry {
    wire::DeadlineMessage deadline;
    int reporter = 0;
    std::uint64_t query = 0;
    base::TimePoint until;
  };

  std::vector<wire::Stream*> all_streams() {
    std::vector<wire::Stream*> streams;
    for (Peer& peer : peers_) streams.push_back(&peer.stream);
    return streams;
  }

  void received(std::size_t index, const wire::ReportMessage& message) {
    peers_[index].heard = message.failure.cause;
    judge(message.failure, rank_of(index));
  }
  // Rank 0 did not run for some time, and the others did not wait for it: their conclusion counts
  // more than their reports.
  void received(std::size_t index, const wire::AloneMessage& message) {
    alone_ = message.failure;
    alone_->seen_by = rank_of(index);
    peers_[index].heard = message.failure.cause;
  }
  void received(std::size_t index, const wire::DeadlineMessage& message) {
    if (!message.what.empty()) peers_[index].heard = message.what;
    inquire(message, rank_of(index));
  }
  void received(std::size_t index, const wire::StatusMessage& message) {
    Peer& peer = peers_[index];
    peer.known = true;
    peer.status = message.status;
    if (!peer.left) peer.heard.clear();
    peer.answered = std::max(peer.answered, std::min(message.query, last_query_));
  }
  void received(std::size_t index, const wire::LeavingMessage& message) {
    Peer& peer = peers_[index];
    if (std::exchange(peer.left, true)) return;
    peer.heard = "has left";
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      peer.status.lanes[lane].finished = message.finished[lane];
    wire::LeftMessage left;
    left.rank = static_cast<std::uint32_t>(rank_of(index));
    std::ranges::copy(message.finished, left.finished);
    const auto bytes = wire::encode(left);
    leavings_.insert(leavings_.end(), bytes.begin(), bytes.end());
    // A rank that leaves gets only the message about itself, which confirms that rank 0 knows.
    send(peer, bytes);
    events_.peer_left(rank_of(index), message.finished);
  }
  void received(std::size_t index, const wire::ReadyMessage&) {
    peers_[index].ready = true;
    go_when_all_are_ready();
  }
  template <class Other>
  void received(std::size_t index, const Other&) {
    peers_[index].stream.end("it sent a control message that only rank 0 sends");
  }

  void lose(std::size_t index) {
    Peer& peer = peers_[index];
    if (std::exchange(peer.gone, true) || peer.left) return;
    peer.heard = "connection ended: " + peer.stream.why();
    if (loss_) return;
    loss_ = Loss{{peer.stream.code(),
                  "rank 0 lost rank " + std::to_string(rank_of(index)) + " at " +
                      peer.stream.peer() + ": " + peer.stream.why(),
                  rank_of(index),
                  {rank_of(index)}},
                 base::after(base::Clock::now(), last_words_time)};
  }
  void look_after_loss() {
    if (loss_ && base::Clock::now() >= loss_->due)
      judge(std::exchange(loss_, std::nullopt)->failure, 0);
  }

  // Ranks tend to leave at about the same time, and n^2 messages would be too many to make and to
  // keep. So all leavings are in one list, with an offset for each rank that stays.
  void tell_leavings() {
    for (Peer& peer : peers_) {
      if (peer.left || peer.gone || peer.told == leavings_.size() || peer.stream.has_shared())
        continue;
      peer.stream.send_shared(std::span(leavings_).subspan(peer.told));
      peer.told = leavings_.size();
    }
  }

  void go_when_all_are_ready() {
    if (!ready_ || events_.has_failed() || !std::ranges::all_of(peers_, &Peer::ready)) return;
    ready_until_ = base::TimePoint::max();
    send_to_all(wire::GoMessage{});
    answers_.ready.put(std::nullopt);
  }

  void look_after_ready() {
    if (base::Clock::now() < ready_until_) return;
    ready_until_ = base::TimePoint::max();
    std::vector<int> late;
    for (std::size_t peer = 0; peer < peers_.size(); ++peer)
      if (!peers_[peer].ready) late.push_back(rank_of(peer));
    judge({Errc::deadline_exceeded,
           base::list_of_ranks(late) +
               " joined the other ranks, but did not finish connect() by its deadline",
           -1, late},
          0);
  }

  // The first failure that comes here is the cause for all ranks. decide() first reads
  // everything that has come from the others.
  void judge(operation::Failure failure, int seen_by) {
    failure.seen_by = seen_by;
    if (!judged_) judged_ = std::move(failure);
  }
  void decide() {
    if (events_.has_failed() || (!judged_ && !alone_)) return;
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) listen_to(peer);
    if (events_.has_failed()) return;
    const operation::Failure cause = wire::as_told(events_.true_cause(alone_ ? *alone_ : *judged_));
    inquiry_.reset();
    send_to_all(wire::VerdictMessage{cause});
    events_.failed(cause, heard());
  }

  Heard heard() const {
    Heard all;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      const Peer& peer = peers_[i];
      if (peer.heard.empty() && !peer.known) continue;
      const std::string text = peer.heard.empty() ? describe(peer.status) : peer.heard;
      all.emplace_back(rank_of(i), base::first_bytes(text, most_heard_bytes));
    }
    return all;
  }

  // One inquiry at a time. A question that comes meanwhile is asked afterwards: answers to the
  // inquiry under way may be older than it.
  void inquire(const wire::DeadlineMessage& deadline, int reporter) {
    if (events_.has_failed()) return;
    if (inquiry_) {
      const wire::DeadlineMessage& asked = inquiry_->deadline;
      if (asked.lane != deadline.lane || asked.operation != deadline.operation)
        return keep(deadline, reporter);
      // Two reports ask one question: the more serious one counts.
      if (weight(asked) < weight(deadline))
        inquiry_->deadline = deadline, inquiry_->reporter = reporter;
      return;
    }
    inquiry_ =
        Inquiry{deadline, reporter, ++last_query_, base::after(base::Clock::now(), query_time)};
    for (Peer& peer : peers_) ask(peer);
  }

  void keep(const wire::DeadlineMessage& deadline, int reporter) {
    auto& kept = kept_[static_cast<std::size_t>(deadline.lane)];
    if (!kept || weight(kept->first) < weight(deadline)) kept.emplace(deadline, reporter);
  }

  void inquire_kept() {
    for (auto& kept : kept_)
      if (const auto next = std::exchange(kept, std::nullopt)) inquire(next->first, next->second);
  }

  void conclude_inquiry() {
    if (!inquiry_) return;
    const bool all = std::ranges::all_of(peers_, [&](const Peer& peer) {
      return peer.left || peer.gone || peer.answered >= inquiry_->query;
    });
    if (!all && base::Clock::now() < inquiry_->until) return;
    std::vector<Standing> standings{{Standing::State::answered, true, events_.status()}};
    for (Peer& peer : peers_) {
      const auto state = peer.left                          ? Standing::State::left
                         : peer.answered >= inquiry_->query ? Standing::State::answered
                                                            : Standing::State::silent;
      standings.push_back({state, peer.known, peer.status});
      if (state == Standing::State::silent && !peer.gone) peer.heard = "does not answer";
    }
    const Inquiry inquiry = *std::exchange(inquiry_, std::nullopt);
    auto disagreement = find_disagreement(inquiry.deadline, standings);
    // Ranks may disagree in the other lane as well, and a rank reports each stall only once.
    if (!disagreement)
      disagreement = find_oldest_disagreement(other_lane(inquiry.deadline.lane), standings);
    if (disagreement) return judge(*disagreement, inquiry.reporter);
    if (inquiry.deadline.warning)
      long_waits_.tell(inquiry.deadline, inquiry.reporter, standings);
    else if (inquiry.deadline.deadline_ns != 0)
      return judge(find_late_ranks(inquiry.deadline, inquiry.reporter, standings),
                   inquiry.reporter);
    inquire_kept();
  }

  // The hub stays until no rank can need it any more for an operation that it has finished itself.
  void look_after_leave() {
    if (!leave_) return;
    const base::TimePoint now = base::Clock::now();
    const bool done =
        std::ranges::all_of(peers_, [&](const Peer& peer) { return is_through(peer); });
    if (done || now >= leave_->until) {
      leave_.reset();
      answers_.left.put(true);
      return;
    }
    if (now < next_look_) return;
    look_pause_ = std::min(longest_look, look_pause_ * 2);
    next_look_ = std::min(leave_->until, base::after(now, look_pause_));
    // One question at a time: unanswered ones must not pile up for a rank that does not read.
    ++last_query_;
    for (Peer& peer : peers_)
      if (!is_through(peer) && peer.answered >= peer.asked) ask(peer);
  }

  void ask(Peer& peer) {
    peer.asked = last_query_;
    send(peer, wire::encode(wire::QueryMessage{last_query_}));
  }

  bool is_through(const Peer& peer) const {
    if (peer.left || peer.gone || events_.has_failed())
      return !peer.stream.has_unsent() || peer.gone;
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      if (peer.status.lanes[lane].finished < leave_->finished[lane]) return false;
    return !peer.stream.has_unsent();
  }

  void send_to_all(const wire::ControlMessage& message) {
    tell_leavings();
    const auto bytes = wire::encode(message);
    for (Peer& peer : peers_) send(peer, bytes);
  }

  void send(Peer& peer, const std::vector<std::byte>& bytes) {
    if (peer.gone) return;
    if (peer.stream.unsent_bytes() > most_unsent_bytes)
      return peer.stream.end("it does not read: more than 8 MiB of control messages wait for it");
    peer.stream.send(bytes);
  }

  const transports::Blob shared_;  // all records; streams send parts of it
  transports::Blob leavings_;      // likewise, frames; never reallocated: room for all is reserved
  std::vector<Peer> peers_;        // of ranks 1, 2, ...
  Answers& answers_;
  Events events_{answers_};
  bool ready_ = false;  // this rank's connect() has done its part
  base::TimePoint ready_until_ = base::TimePoint::max();
  std::uint64_t last_query_ = 0;
  std::optional<Inquiry> inquiry_;
  std::optional<std::pair<wire::DeadlineMessage, int>> kept_[lane_count];  // with their reporters
  // The cause that this rank has chosen, and the one that the others concluded without it.
  std::optional<operation::Failure> judged_, alone_;
  std::optional<Loss> loss_;
  std::optional<LeaveCommand> leave_;
  LongWaits long_waits_;
  base::TimePoint next_look_;
  milliseconds look_pause_ = first_look;
};

}  // namespace

std::unique_ptr<Control> make_hub(std::vector<wire::Stream> streams, transports::Blob shared) {
  return std::make_unique<Endpoint<Hub>>(std::move(streams), std::move(shared));
}

}  // namespace rondo::control

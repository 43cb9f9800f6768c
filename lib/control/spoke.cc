// SPDX-License-Identifier: Apache-2.0
//
// The end of the control plane on every rank but 0. It reports to rank 0 and waits for the verdict.
// If none comes in time, it concludes by itself, in words that every rank finds alike.
#include <algorithm>
#include <type_traits>

#include "lib/control/endpoint.h"
#include "lib/wire/join_report.h"
#include "lib/wire/socket.h"

namespace rondo::control {
namespace {

// How long this rank waits for rank 0's verdict before it concludes by itself.
constexpr milliseconds hub_time{2000};

// Reports the failure and waits for rank 0's verdict, for a bounded time, without a thread.
operation::Failure report_alone(wire::Stream& stream, const operation::Failure& failure) {
  stream.send(wire::encode(wire::ReportMessage{failure}));
  const base::TimePoint until = base::after(base::Clock::now(), hub_time);
  std::optional<operation::Failure> verdict;
  while (!verdict && !stream.ended() && wire::wait_for(stream.descriptor(), stream.events(), until))
    exchange(stream, [&](const auto& message) {
      if constexpr (std::is_same_v<decltype(message), const wire::VerdictMessage&>)
        verdict = message.failure;
    });
  return verdict.value_or(failure);
}

class Spoke {
 public:
  Spoke(Answers& answers, wire::Stream stream, int rank)
      : answers_(answers), stream_(std::move(stream)), rank_(rank) {}

  operation::Failure tell_alone(const std::string& why) {
    return report_alone(stream_,
                        {Errc::system, wire::could_not_connect(rank_, why), -1, {rank_}, rank_});
  }

  std::string too_late() const {
    return "rank 0 at " + hub_ +
           " did not confirm by the deadline of connect() that all ranks are connected: it is "
           "stopped, unreachable or too busy";
  }

  void watch(std::vector<pollfd>& entries) const {
    entries.push_back({hub_gone_ ? -1 : stream_.descriptor(), stream_.events(), 0});
  }
  void listen_to(std::size_t) { listen_to_hub(); }

  // Only a report that waits for its answer, and the loss of rank 0, have a time.
  base::TimePoint due() const {
    return std::min(verdict_due_.value_or(base::TimePoint::max()),
                    loss_ ? loss_->due : base::TimePoint::max());
  }

  void turn() {
    if (stream_.ended()) listen_to_hub();
    if (verdict_due_ && base::Clock::now() >= *verdict_due_) judge_alone();
    if (loss_ && base::Clock::now() >= loss_->due)
      conclude(std::exchange(loss_, std::nullopt)->failure);
  }

  void handle(const StartCommand& command) {
    events_.start(*command.client);
    answer();
  }
  void handle(const wire::ReportMessage& message) { tell_hub(message, message.failure); }
  void handle(const wire::DeadlineMessage& message) {
    if (message.deadline_ns == 0 || message.warning) {  // no verdict is owed
      if (!hub_gone_) stream_.send(wire::encode(message));
      return;
    }
    tell_hub(message, {Errc::deadline_exceeded, message.what});
  }
  void handle(const LeaveCommand& command) {
    leaving_ = true;
    wire::LeavingMessage message;
    std::ranges::copy(command.finished, message.finished);
    stream_.send(wire::encode(message));
    if (hub_gone_) answers_.left.put(true);
  }
  void handle(const ReadyCommand&) { stream_.send(wire::encode(wire::ReadyMessage{})); }
  void handle(const wire::ConstantsMessage&) {}

  void finish() { flush({&stream_}); }

 private:
  void listen_to_hub() {
    if (hub_gone_) return;
    exchange(stream_, [this](const auto& message) { received(message); });
    if (stream_.ended()) lose_hub();
  }

  void received(const wire::ConstantsMessage& message) {
    answers_.constants.put(message.constants);
  }
  void received(const wire::GoMessage&) { answers_.ready.put(std::nullopt); }
  void received(const wire::VerdictMessage& message) {
    verdict_due_.reset();
    events_.failed(message.failure);
  }
  void received(const wire::QueryMessage& message) {
    query_ = message.query;
    answer();
  }
  void received(const wire::LeftMessage& message) {
    if (message.rank == static_cast<std::uint32_t>(rank_)) return answers_.left.put(true);
    if (message.rank == 0) hub_left_ = true;
    events_.peer_left(static_cast<int>(message.rank), message.finished);
  }
  template <class Other>
  void received(const Other&) {
    stream_.end("it sent a control message that is not for this rank");
  }

  // Without a client nothing is known: the answer waits for it.
  void answer() {
    if (!query_ || !events_.has_client()) return;
    stream_.send(wire::encode(wire::StatusMessage{*query_, events_.status()}));
    query_.reset();
  }

  void lose_hub() {
    hub_gone_ = true;
    answers_.left.put(true);
    answers_.constants.put(std::nullopt);
    if (hub_left_ || leaving_) {
      if (verdict_due_) conclude(own_);
    } else {
      // Rank 0 cannot send a verdict, so every rank must find the same words by itself. Other ranks
      // may be missed only because rank 0 died, so their loss counts less than this. A failure of
      // another kind that this rank saw itself counts more.
      operation::Failure loss{
          stream_.code(),
          "lost rank 0 at " + stream_.peer() + ": its control connection has ended",
          0,
          {0}};
      const std::string& why = stream_.why();
      if (stream_.code() == Errc::authentication || why.find("it sent") != std::string::npos)
        loss.cause += ": " + why;
      if (verdict_due_ && is_first_hand(own_)) {
        own_.cause += "; " + loss.cause;
        conclude(own_);
      } else {
        loss_ = Loss{loss, base::after(base::Clock::now(), last_words_time)};
      }
    }
    verdict_due_.reset();
  }

  void tell_hub(const wire::ControlMessage& message, operation::Failure own) {
    if (own.lost >= 0) listen_to_hub();  // it may have said that the rank has left
    if (events_.has_failed()) return;
    // A failure after rank 0 has gone comes from that, unless this rank saw another cause.
    if (loss_ && is_first_hand(own))
      own.cause += "; " + loss_->failure.cause;
    else if (loss_)
      own = loss_->failure;
    if (hub_gone_) return conclude(own);
    stream_.send(wire::encode(message));
    if (verdict_due_) return;
    own_ = std::move(own);
    verdict_due_ = base::after(base::Clock::now(), hub_time);
  }

  // The failure of this rank, without a verdict.
  void conclude(operation::Failure failure) {
    failure.seen_by = rank_;
    events_.failed(events_.true_cause(failure));
  }

  static bool is_first_hand(const operation::Failure& failure) {
    return failure.code != Errc::deadline_exceeded && failure.code != Errc::peer_lost &&
           failure.code != Errc::peer_left;
  }

  // Rank 0 did not answer in time: it is stopped, unreachable or too busy. The other ranks conclude
  // the same, in the same words, and tell rank 0 in case it continues. What this rank saw itself,
  // also about its connection to rank 0, counts more.
  void judge_alone() {
    verdict_due_.reset();
    static constexpr const char* hub =
        "rank 0 does not answer (stopped, unreachable, or behind a full link)";
    if (is_first_hand(own_) || own_.lost == 0)
      own_.cause += std::string("; ") + hub;
    else
      own_ = {Errc::deadline_exceeded, hub, -1, {0}};
    own_.seen_by = rank_;
    stream_.send(wire::encode(wire::AloneMessage{own_}));
    events_.failed(own_);
  }

  Answers& answers_;
  Events events_{answers_};
  wire::Stream stream_;
  const int rank_;
  const std::string hub_ = stream_.peer();
  bool hub_left_ = false;  // in order
  bool hub_gone_ = false;  // the connection has ended
  bool leaving_ = false;
  std::optional<std::uint64_t> query_;  // from rank 0, not answered yet
  std::optional<base::TimePoint> verdict_due_;
  std::optional<Loss> loss_;  // of rank 0, to be reported when it is due
  operation::Failure own_;    // what this rank reported, while the verdict is due
};

}  // namespace

std::unique_ptr<Control> make_spoke(wire::Stream stream, int rank) {
  return std::make_unique<Endpoint<Spoke>>(std::move(stream), rank);
}

}  // namespace rondo::control

// SPDX-License-Identifier: Apache-2.0
//
// Keeps why the communicator ends, and the reports about it. A rank that sees a failure stops
// moving bytes and reports it: a suspicion. The cause that holds for all ranks comes back through
// settle(). If none comes within verdict_time, the suspicion becomes the cause. A later suspicion
// or cause does not replace the first.
//
// Threads: thread-bound to whoever holds the engine's lock. The engine makes the reports without
// the lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rondo/types.h>

#include "base/clock.h"
#include "collectives/operation/failure.h"
#include "collectives/operation/watch.h"

namespace rondo::engine {

// Hears of failures that this rank saw first-hand, and answers through Engine::fail with the cause
// that holds for all ranks. The engine calls it without its lock and on any thread that uses it: a
// driver, a thread that starts an operation or aborts, the control thread. It must not block.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void failure(const operation::Failure& failure) = 0;
  // Nothing has arrived for a while although the collective waits: perhaps ranks have called
  // different things. Called at most once for each operation.
  virtual void stalled(Priority lane, std::uint64_t number) = 0;
  // The operation has waited for EngineOptions::warn_after. Called at most once for each operation.
  // Number 0, here and below: messages between two ranks.
  virtual void slow(Priority lane, std::uint64_t number, nanoseconds waited) = 0;
  // A rank has been the last all the time.
  virtual void late(const operation::LateReport& report) = 0;
  // The operation did not end within `limit`. view: what this rank lacks, as LaneCalls::late() says
  // it.
  virtual void deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                        const std::string& view) = 0;
};

class Verdict {
 public:
  // How long a rank that has reported a failure waits for the cause that holds for all.
  static constexpr milliseconds verdict_time{3000};

  using Report = std::function<void(EngineObserver&)>;

  // Without an observer nobody answers, so the first suspicion is the cause at once.
  explicit Verdict(EngineObserver* observer) noexcept : observer_(observer) {}

  // True when no pass may begin any more: the communicator has failed, or this rank suspects it. In
  // the pass under way links may still deliver (owner.h), and an operation may end well.
  bool stopped() const noexcept { return stopped_; }
  // The cause with which operations end; null until there is one.
  const operation::Failure* failure() const noexcept { return failure_ ? &*failure_ : nullptr; }

  // The next five return true when the communicator has just failed: the caller then ends every
  // operation.
  [[nodiscard]] bool suspect(operation::Failure failure, base::TimePoint now);
  // The time of a call is over: reported as a deadline. own: what this rank knows of it.
  [[nodiscard]] bool expire(Priority lane, std::uint64_t number, nanoseconds limit,
                            operation::Failure own, base::TimePoint now);
  [[nodiscard]] bool settle(const operation::Failure& failure);
  // This rank ends: what it suspects is the cause, or else `failure`.
  [[nodiscard]] bool end(const operation::Failure& failure) {
    return settle(suspicion_ ? operation::Failure(*suspicion_) : failure);
  }
  // Makes the suspicion the cause when no answer has come within verdict_time.
  [[nodiscard]] bool check(base::TimePoint now) {
    return now >= suspicion_until_ && settle(operation::Failure(*suspicion_));
  }
  base::TimePoint next_check() const noexcept { return suspicion_until_; }

  // Null when there is none. It outlives the engine and is called without the lock.
  EngineObserver* observer() const noexcept { return observer_; }
  // Keeps a report until take_reports(). There must be an observer.
  void report(Report report) { reports_.push_back(std::move(report)); }
  bool has_reports() const noexcept { return !reports_.empty(); }
  std::vector<Report> take_reports() noexcept { return std::exchange(reports_, {}); }

 private:
  bool begin_suspicion(operation::Failure failure, Report report, base::TimePoint now);

  EngineObserver* const observer_;
  bool stopped_ = false;
  std::optional<operation::Failure> failure_;    // the cause
  std::optional<operation::Failure> suspicion_;  // seen here, not yet confirmed
  base::TimePoint suspicion_until_ = base::TimePoint::max();
  std::vector<Report> reports_;
};

}  // namespace rondo::engine

// SPDX-License-Identifier: Apache-2.0
//
// Why the communicator ends, and who is told of it. A rank that sees a failure stops moving bytes
// and reports it: a suspicion. The cause that holds for all ranks comes back through settle(), or
// the rank settles for its own after verdict_time. The first suspicion stays, and so does the first
// cause.
//
// Threads: thread-bound to whoever holds the engine's lock. Reports are made without the lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rondo/types.h>

#include "base/clock.h"
#include "collectives/engine/failure.h"

namespace rondo::engine {

// Hears of failures that this rank saw first-hand, and answers through Engine::fail with the cause
// that holds for all ranks. Called without the engine's lock, on the thread that drives; must not
// block.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void failure(const Failure& failure) = 0;
  // Nothing has arrived for a while although the operation waits: perhaps ranks have called
  // different things.
  virtual void stalled(Priority lane, std::uint64_t number) = 0;
  // It has waited for EngineOptions::warn_after; said once for each operation. Number 0: messages
  // between two ranks.
  virtual void slow(Priority lane, std::uint64_t number, nanoseconds waited) = 0;
  virtual void deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                        const std::string& view) = 0;
};

class Verdict {
 public:
  // So long a rank that has reported a failure waits for the cause that holds for all.
  static constexpr milliseconds verdict_time{3000};

  using Report = std::function<void(EngineObserver&)>;

  // Without an observer nobody answers: every suspicion is the cause at once.
  explicit Verdict(EngineObserver* observer) noexcept : observer_(observer) {}

  // Nothing may be moved any more: the communicator has failed, or this rank suspects so.
  bool stopped() const noexcept { return stopped_; }
  // It holds for the communicator. Null: none yet.
  const Failure* failure() const noexcept { return failure_ ? &*failure_ : nullptr; }

  // These return true when the communicator has just failed: the caller ends every operation.
  [[nodiscard]] bool suspect(Failure failure, base::TimePoint now);
  // The time of a call is over; reported as a deadline. `view` is what this rank lacks.
  [[nodiscard]] bool expire(Priority lane, std::uint64_t number, nanoseconds limit,
                            std::string view, base::TimePoint now);
  [[nodiscard]] bool settle(const Failure& failure);
  // Settles for the suspicion when no answer has come in time.
  [[nodiscard]] bool check(base::TimePoint now);
  base::TimePoint next_check() const noexcept { return suspicion_until_; }

  // Null: there is none. It outlives the engine and is called without the lock.
  EngineObserver* observer() const noexcept { return observer_; }
  // Keeps a report until take_reports(). There must be an observer.
  void report(Report report) { reports_.push_back(std::move(report)); }
  bool has_reports() const noexcept { return !reports_.empty(); }
  std::vector<Report> take_reports() noexcept { return std::exchange(reports_, {}); }

 private:
  bool begin_suspicion(Failure failure, Report report, base::TimePoint now);

  EngineObserver* const observer_;
  bool stopped_ = false;
  std::optional<Failure> failure_;    // holds for the communicator
  std::optional<Failure> suspicion_;  // seen here, not yet confirmed
  base::TimePoint suspicion_until_ = base::TimePoint::max();
  std::vector<Report> reports_;
};

}  // namespace rondo::engine

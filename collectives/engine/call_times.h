// SPDX-License-Identifier: Apache-2.0
//
// Watches how long the calls under way take: ends the communicator when one has passed its
// deadline, and reports those that wait for long. The time of a call counts from the first check
// after its start, so that a start reads no clock.
//
// Threads: thread-bound to whoever holds the engine's lock.
#pragma once

#include <algorithm>
#include <span>

#include "base/clock.h"
#include "collectives/engine/verdict.h"
#include "collectives/operation/lane_calls.h"

namespace rondo::engine {

class CallTimes {
 public:
  // warn_after: a call that has waited for so long is reported as slow; 0: never. calls and verdict
  // outlive this object.
  CallTimes(std::span<operation::LaneCalls> calls, Verdict& verdict,
            nanoseconds warn_after) noexcept
      : calls_(calls), verdict_(verdict), warn_after_(warn_after) {}

  void call_started() noexcept { new_calls_ = true; }
  // When check() or start_clocks() must be called next. It may be too early: a call may have ended.
  base::TimePoint next_check() const noexcept {
    return new_calls_ ? base::TimePoint::min() : std::min(next_deadline_, next_progress_check_);
  }
  // Starts the clocks of the calls that no check has seen.
  void start_clocks(base::TimePoint now) noexcept;
  // True when the communicator has just failed: the caller then ends every operation.
  [[nodiscard]] bool check(base::TimePoint now);
  // All calls have ended.
  void clear() noexcept;

 private:
  void check_progress(base::TimePoint now);
  bool check_deadlines(base::TimePoint now);

  const std::span<operation::LaneCalls> calls_;
  Verdict& verdict_;
  const nanoseconds warn_after_;
  bool new_calls_ = false;  // some are not timed
  // No deadline passes before this.
  base::TimePoint next_deadline_ = base::TimePoint::max();
  // When to look whether anything has arrived since the last look.
  base::TimePoint next_progress_check_ = base::TimePoint::max();
};

}  // namespace rondo::engine

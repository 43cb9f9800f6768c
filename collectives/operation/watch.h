// SPDX-License-Identifier: Apache-2.0
//
// Times what the oldest call of a lane waits for, and which rank it waited for alone. A call that
// ends before the driver's second look at the clock costs no look and counts as no wait. Others
// cost one look when all ranks have called and one at the end.
//
// Threads: thread-bound to whoever holds the engine's lock. Only the constructor allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <rondo/communicator.h>

#include "base/clock.h"
#include "collectives/operation/tag_counts.h"

namespace rondo::operation {

class Operation;

// The cause for which an operation waits now, and the rank that is late.
struct Standing {
  WaitCause cause = WaitCause::transfer;
  // While the cause is `ranks`: the only rank that has not called it, of those that this rank hears
  // of first-hand; -1: there are several.
  int only = -1;
  // This rank writes the warning, of those that see this.
  bool warns = false;
};

// A rank that was the last all the time.
struct LateReport {
  int rank = 0;
  std::int64_t times = 0, calls = 0;  // it was the last in so many calls, of so many
  nanoseconds each{};                 // how long this rank waited for it alone, in the mean
};

class Watch {
 public:
  // size: of the communicator. tags: null, or outlives this object.
  explicit Watch(int size = 0, TagCounts* tags = nullptr)
      : late_(static_cast<std::size_t>(size)), tags_(tags) {}

  // The driver looks at the clock: oldest is the oldest call of the lane, or null.
  void look(const Operation* oldest, base::TimePoint now);
  // The driver is about to yield or sleep: the call may end before another look.
  void pausing() noexcept { seen_again_ = true; }
  // Whether heard_all() of this operation would count a wait.
  bool waits_for_ranks(const Operation& operation) const noexcept {
    return watched_ == &operation && cause_ == WaitCause::ranks;
  }
  // All ranks that this one hears of have called the operation. Notes there which was the last.
  void heard_all(Operation& operation) noexcept;
  // The operation has ended. A value: a rank to warn about.
  std::optional<LateReport> ended(const Operation& operation) noexcept;
  // All calls have ended.
  void clear() noexcept { watched_ = nullptr; }

  nanoseconds waited(WaitCause cause) const noexcept {
    return waited_[static_cast<std::size_t>(cause)];
  }
  const std::vector<LateRank>& late() const noexcept { return late_; }

 private:
  // The calls since the last verdict about them. The first rank that is late is the only one that
  // can be late nearly always, so only its calls are counted.
  struct Window {
    std::int64_t calls = 0, times = 0;
    int candidate = -1;
    bool warns = false;
    base::TimePoint since;  // the first call in which it was late
    nanoseconds late{}, all{};

    bool is_late() const noexcept;
  };

  void add(base::TimePoint now) noexcept;
  std::optional<LateReport> judge_window() noexcept;

  std::vector<LateRank> late_;  // by rank
  std::array<nanoseconds, wait_cause_count> waited_{};
  TagCounts* const tags_;

  const Operation* watched_ = nullptr;  // only compared: it may have ended
  TagCounts::Entry* tag_ = nullptr;
  base::TimePoint since_;  // the last look, which counts up to there
  WaitCause cause_ = WaitCause::transfer;
  bool seen_again_ = false;
  int only_ = -1;
  bool warns_ = false;
  base::TimePoint only_since_;

  Window window_;
  base::TimePoint next_warning_ = base::TimePoint::min();
};

}  // namespace rondo::operation

// SPDX-License-Identifier: Apache-2.0
//
// Decides when the background thread looks whether any thread drives.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace rondo::engine {

// Each look costs a timer and two switches of threads, and takes the core from a rank that works.
// Setting a timer costs 10 us and more in a virtual machine. So one timer serves all operations
// that start before it ends, and it is not taken back. Where programs wait for all that they start,
// looks become rarer.
class BackgroundDelay {
 public:
  // A look that finds nobody in need doubles the time to the next one; a look that was needed sets
  // it back (docs/reference/waiting.md).
  static constexpr nanoseconds least = microseconds{1000}, most = 16 * least;

  // From the start of an operation to the look.
  nanoseconds after_start() const noexcept { return delay_; }
  // True when a timer must be set to this time. One that is set already is not replaced to gain
  // less than a millisecond.
  bool set(nanoseconds time) noexcept {
    if (set_ && time_ <= std::max(time, least)) return false;
    set_ = true;
    time_ = time;
    return true;
  }
  // The timer has ended. needed: an operation was pending, and nobody waited for any.
  void looked(bool needed) noexcept {
    set_ = false;
    delay_ = needed ? least : std::min(2 * delay_, most);
  }

 private:
  nanoseconds delay_ = least, time_{};
  bool set_ = false;
};

}  // namespace rondo::engine

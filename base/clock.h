// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace rondo {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// now + time without overflow: a huge duration means "never".
inline TimePoint after(TimePoint now, nanoseconds time) noexcept {
  return time >= TimePoint::max() - now ? TimePoint::max() : now + time;
}

// A timeout for poll() and friends: rounded up to whole milliseconds, never negative, at most `cap`.
inline int poll_timeout(TimePoint now, TimePoint until, milliseconds cap = milliseconds{1000}) noexcept {
  if (until <= now) return 0;
  if (until - now >= cap) return static_cast<int>(cap.count());
  return static_cast<int>(std::chrono::ceil<milliseconds>(until - now).count());
}

}  // namespace rondo

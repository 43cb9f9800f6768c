// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace rondo {

// Every room uses these durations without std::chrono.
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

}  // namespace rondo

namespace rondo::base {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

// Adds without overflow. A time of a century or more, or beyond the clock's end, means "never":
// TimePoint::max().
template <class Rep, class Period>
TimePoint after(TimePoint now, std::chrono::duration<Rep, Period> time) noexcept {
  constexpr double century_s = 3.2e9;
  if (std::chrono::duration<double>(time).count() >= century_s) return TimePoint::max();
  const auto step = std::chrono::duration_cast<nanoseconds>(time);
  if (step > nanoseconds::zero() && now > TimePoint::max() - step) return TimePoint::max();
  return now + step;
}

// The timeout for poll() or epoll_wait(): rounded up to whole milliseconds, 0 when `until` has
// passed, at most `cap`.
inline int poll_timeout(TimePoint now, TimePoint until,
                        milliseconds cap = milliseconds{1000}) noexcept {
  if (until <= now) return 0;
  if (until - now >= cap) return static_cast<int>(cap.count());
  return static_cast<int>(std::chrono::ceil<milliseconds>(until - now).count());
}

}  // namespace rondo::base

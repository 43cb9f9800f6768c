// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "base/clock.h"
#include "base/futex.h"

namespace rondo::engine {

// A timer for one thread, which takes neither a descriptor nor a lock. Any thread may call set();
// one calls wait().
class Alarm {
 public:
  // wait() returns after this time. A time that was set before no longer counts.
  void set(nanoseconds delay) noexcept {
    due_.store((base::Clock::now() + delay).time_since_epoch().count());
    base::wake_all(changed_);
  }
  void set_now() noexcept {
    due_.store(0);
    base::wake_all(changed_);
  }
  // Sleeps until the time that was set, for ever if none is. Afterwards none is set.
  void wait() noexcept {
    for (;;) {
      const std::uint32_t seen = changed_.load();
      std::int64_t due = due_.load();
      const std::int64_t now = base::Clock::now().time_since_epoch().count();
      if (due > now)
        base::sleep_on(changed_, seen, nanoseconds{std::min(due - now, longest_sleep)});
      else if (due_.compare_exchange_strong(due, never))
        return;
    }
  }

 private:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t longest_sleep = nanoseconds{std::chrono::hours{1}}.count();

  std::atomic<std::int64_t> due_{never};  // on base::Clock
  base::WakeWord changed_{0};
};

}  // namespace rondo::engine

// SPDX-License-Identifier: Apache-2.0
//
// Lets a program end a wait of connect(), for example on Ctrl-C: Options::interrupted.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>

#include <rondo/error.h>

#include "base/clock.h"

namespace rondo::base {

// Waits look so often whether their program wants to stop them.
inline constexpr milliseconds interruption_interval{100};

struct Interrupted final : Error {
  Interrupted() : Error(Errc::aborted, "the program interrupted it") {}
};

// The waits of this thread ask this while the object lives.
class Interruption {
 public:
  // wanted may be empty: nothing is asked. It outlives this object.
  explicit Interruption(const std::function<bool()>& wanted) noexcept;
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  // Throws Interrupted if the program of this thread wants to stop. Then it asks no more: the
  // thread may still tell other ranks.
  static void check();

 private:
  const std::function<bool()>* const before_;
};

// As condition_variable::wait_until(), and throws as Interruption::check().
template <class Done>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                TimePoint until, const Done& done) {
  for (;;) {
    const TimePoint now = Clock::now();
    if (changed.wait_until(lock, std::min(until, now + interruption_interval), done)) return true;
    if (Clock::now() >= until) return false;
    lock.unlock();
    Interruption::check();
    lock.lock();
  }
}

}  // namespace rondo::base

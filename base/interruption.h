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

// How often a wait asks whether the program wants to stop it.
inline constexpr milliseconds interruption_interval{100};

struct Interrupted final : Error {
  Interrupted() : Error(Errc::aborted, "the program ended the call, as on Ctrl-C") {}
};

// While the object lives, waits of this thread ask `wanted` whether to stop.
class Interruption {
 public:
  // An empty function asks nothing. `wanted` must outlive this object.
  explicit Interruption(const std::function<bool()>& wanted) noexcept;
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  // Throws Interrupted if the program wants to stop. After that it asks no more, so that the thread
  // can still tell other ranks.
  static void check();

 private:
  const std::function<bool()>* const before_;
};

// Like condition_variable::wait_until(), and throws like Interruption::check().
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

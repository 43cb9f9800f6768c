// SPDX-License-Identifier: Apache-2.0
//
// Decides what a driver does when a pass has moved nothing: spin, yield its core, or sleep.
// docs/reference/waiting.md gives the reasons and the measurements.
#pragma once

#include <optional>

#include "base/clock.h"

namespace rondo::engine {

// RONDO_WAIT. spin: never sleep. sleep: sleep at once.
enum class WaitMode { automatic, spin, sleep };

// How long a thread that sleeps needs to run again, on a core that nobody else uses: the median of
// some sleeps, measured once in a process. It takes a millisecond.
nanoseconds wake_time() noexcept;

// Decides one wait after another of one driver. Thread-bound to whoever holds the driver's lock. It
// reads no clock, and makes one system call (involuntary_switches) in a wait that outlasts its
// spin.
class Waiting {
 public:
  enum class Next { spin, look, yield, sleep };
  // The ranks that are awake and were last seen on this thread's core: there is none; none that
  // this thread awaits, so a yield would only go to one that waits too; or some.
  enum class Company { none, waiting, awaited };

  // wake: wake_time(). ranks_per_core: of this host, rounded up.
  Waiting(WaitMode mode, nanoseconds wake, int ranks_per_core) noexcept;

  // A pass has moved something: the wait is over.
  void moved() noexcept { waiting_ = false; }
  // Returns what to do after a pass that has moved nothing. look: make another pass and ask again.
  Next next(base::TimePoint now, Company company) noexcept;
  // The yield that next() wanted took this time.
  void yielded(nanoseconds time) noexcept;

 private:
  bool shares_core() noexcept;

  const WaitMode mode_;
  const nanoseconds wake_, spin_time_, patience_, long_yield_;
  bool waiting_ = false;
  // About this wait:
  base::TimePoint since_{};
  nanoseconds lost_{};  // in long yields
  bool shared_ = false;
  std::optional<base::TimePoint> looks_since_;
  enum class Core { unknown, alone, shared } core_ = Core::unknown;
  // About all waits:
  nanoseconds excess_{};   // what long yields have cost more than sleeps would have
  bool switched_ = false;  // the switches counted include yields to other ranks
};

}  // namespace rondo::engine

// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/waiting.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/file_descriptor.h"
#include "base/thread.h"

namespace rondo::engine {
namespace {

// How long a wait goes on without sleep, for each of the ranks that share the core, at least two.
// A rank that waits longer waits for a peer that computes.
constexpr microseconds patience{500};
// A yield between ranks ends after the turns of the other ranks on that core. It takes at most this
// time for each rank of the core, and for two at least. A longer yield has gone to a thread that
// computes, and that keeps the core for a time slice of milliseconds.
constexpr microseconds long_turn{250};
// Yields stop when long ones have cost this much more than sleeps: a slice or two.
constexpr milliseconds most_excess{5};
// The longest yield on a core that no other thread wants.
constexpr microseconds lone_yield{20};

// Ranks on other cores post about as soon as a switch of theirs ends. Nothing is gained by two
// switches here meanwhile.
constexpr microseconds look_time{2};

// A process measures the time of a wake-up once: the median lateness of so many sleeps. Values
// outside of these bounds come from a disturbed machine.
constexpr int wake_samples = 7;
constexpr microseconds sample_sleep{100};
constexpr microseconds least_wake{5}, most_wake{60};

// Sleeps, and returns how much too late the thread runs again.
nanoseconds oversleep(int timer) noexcept {
  const base::TimePoint until = base::Clock::now() + sample_sleep;
  const auto at = std::chrono::duration_cast<nanoseconds>(until.time_since_epoch()).count();
  const itimerspec time{{0, 0}, {at / 1'000'000'000, at % 1'000'000'000}};
  std::uint64_t expirations = 0;
  if (::timerfd_settime(timer, TFD_TIMER_ABSTIME, &time, nullptr) != 0) return least_wake;
  [[maybe_unused]] const auto got = ::read(timer, &expirations, sizeof expirations);
  return base::Clock::now() - until;
}

nanoseconds measure_wake_time() noexcept {
  const base::FileDescriptor timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  if (timer.get() < 0) return least_wake;
  std::array<nanoseconds, wake_samples> samples;
  for (nanoseconds& sample : samples) sample = oversleep(timer.get());
  std::ranges::nth_element(samples, samples.begin() + wake_samples / 2);
  return std::clamp<nanoseconds>(samples[wake_samples / 2], least_wake, most_wake);
}

}  // namespace

nanoseconds wake_time() noexcept {
  static const nanoseconds time = measure_wake_time();
  return time;
}

Waiting::Waiting(WaitMode mode, nanoseconds wake, int ranks_per_core) noexcept
    : mode_(mode),
      wake_(wake),
      spin_time_(3 * wake),
      patience_(patience * std::max(ranks_per_core, 2)),
      long_yield_(long_turn * std::max(ranks_per_core, 2)) {}

Waiting::Next Waiting::next(base::TimePoint now, Company company) noexcept {
  if (!waiting_) {
    waiting_ = true;
    since_ = now;
    lost_ = {};
    core_ = Core::unknown;
    excess_ = std::max(excess_ - wake_, nanoseconds{});
    looks_since_.reset();
  }
  const bool shared = shared_ = company != Company::none;
  if (company != Company::waiting) looks_since_.reset();
  if (mode_ == WaitMode::sleep) return Next::sleep;
  if (mode_ == WaitMode::spin) return shared ? Next::yield : Next::spin;
  const nanoseconds waited = now - since_ - lost_;
  if (waited >= patience_) return Next::sleep;
  if (company == Company::waiting) {
    if (!looks_since_) looks_since_ = now;
    if (now - *looks_since_ < look_time) return Next::look;
  }
  if (shared) return excess_ > most_excess ? Next::sleep : Next::yield;
  if (waited < spin_time_) return Next::spin;
  return shares_core() ? Next::sleep : Next::yield;
}

// Whether a thread that is no rank has wanted this one's core since the last wait that asked.
bool Waiting::shares_core() noexcept {
  thread_local long seen = 0;
  if (core_ == Core::unknown) {
    const long before = std::exchange(seen, base::involuntary_switches());
    core_ = seen == before || switched_ ? Core::alone : Core::shared;
    switched_ = false;
  }
  return core_ == Core::shared;
}

void Waiting::yielded(nanoseconds time) noexcept {
  if (shared_)
    switched_ = true;
  else if (time > lone_yield)
    core_ = Core::shared;
  if (time < long_yield_) return;
  lost_ += time;
  excess_ += time;
}

}  // namespace rondo::engine

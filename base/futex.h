// SPDX-License-Identifier: Apache-2.0
//
// Sleeps on a word of memory, which processes may share (futex(2)). Unlike an event, a word needs
// no descriptor. A sleeper reads the word, looks for work, and sleeps only while the word is still
// what it read; a waker changes the word first. So no wake-up is lost. Thread-safe, and nothing
// fails: a system that refuses lets the sleeper return at once.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include "base/clock.h"

namespace rondo::base {

using WakeWord = std::atomic<std::uint32_t>;
static_assert(sizeof(WakeWord) == 4 && WakeWord::is_always_lock_free);

// Returns when the word is not `seen`, when wake_all() is called, after `limit`, or earlier.
inline void sleep_on(const WakeWord& word, std::uint32_t seen, nanoseconds limit) noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t left = std::max<std::int64_t>(limit.count(), 0);
  const timespec time{static_cast<std::time_t>(left / second), static_cast<long>(left % second)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

inline void wake_all(WakeWord& word) noexcept {
  word.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Does the same for a word that this process may only read, and so cannot change. A sleeper that is
// about to sleep may miss it: call it again until the sleeper has done what is wanted.
inline void wake_sleepers(const WakeWord& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace rondo::base

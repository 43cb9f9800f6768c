// SPDX-License-Identifier: Apache-2.0
//
// A full fence between processes of which one side pays nothing (membarrier(2)). Ranks look whether
// a peer sleeps after each message, and rarely sleep: so who sleeps pays. The waker stores its news
// and then reads whether the other sleeps, with light_fence() between. The sleeper stores that it
// sleeps, calls heavy_fence(), and then looks for news. One of them sees the other. Thread-safe.
#pragma once

#include <atomic>

namespace rondo::base {

// Makes heavy_fence() of other processes reach the threads of this one, and says whether both work
// here: some containers refuse the system call. Only then light_fence() is a fence, towards those
// that call heavy_fence().
bool join_process_fences() noexcept;

// Keeps the compiler from changing the order. The processor may, until the other side's
// heavy_fence().
inline void light_fence() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Returns when every thread that runs in a process that has joined has made a full fence, and makes
// one itself. It takes 0.4 to 6 us.
void heavy_fence() noexcept;

}  // namespace rondo::base

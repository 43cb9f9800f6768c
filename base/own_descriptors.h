// SPDX-License-Identifier: Apache-2.0
//
// Which descriptors of this process are Rondo's. A child made by fork() inherits them all, and as long as it lives the peers of a rank that
// has died would see open connections. So the child closes them at once (pthread_atfork).
//
// This is state of the whole process, and has to be: fork() copies the process, not one communicator. It is a table of bits, one for each
// number, without a lock and without memory of its own, for a child may do little more before it calls exec() than close descriptors.
// A descriptor that another thread is opening at the moment of the fork may be missed. All of it is thread-safe.
#pragma once

#include <atomic>
#include <string_view>

namespace rondo {

void add_own_descriptor(int number) noexcept;
// Before it is closed or given away: another thread may get the number at once.
void remove_own_descriptor(int number) noexcept;

namespace internal {
extern std::atomic<unsigned> forks;
}  // namespace internal

// How many forks stand between this process and the one that loaded the library. What was made under another number belongs to another
// process: its descriptors are closed here, or their numbers mean something else.
inline unsigned process_generation() noexcept {
  return internal::forks.load(std::memory_order_relaxed);
}

// The error of a communicator that is used in a forked child.
inline constexpr std::string_view used_in_child =
    "this process is a forked child, without the connections and threads of the communicator that its "
    "parent made: connect in the child, or leave all communication to the parent";

}  // namespace rondo

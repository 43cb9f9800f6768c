// SPDX-License-Identifier: Apache-2.0
//
// Knows which descriptors of this process are Rondo's. A child made by fork() inherits them all.
// While it lives, the peers of a rank that has died would see open connections. So the child closes
// them at once (pthread_atfork).
//
// This is state of the whole process because fork() copies the process, not one communicator. It is
// a table of bits, one for each number. It takes no lock and no memory, since a child may do little
// more before exec() than close descriptors. A descriptor that another thread opens during the fork
// may be missed. Thread-safe.
#pragma once

#include <atomic>
#include <string_view>

namespace rondo::base {

void add_own_descriptor(int number) noexcept;
// Call it before the descriptor is closed or given away: another thread may get the number at once.
void remove_own_descriptor(int number) noexcept;

namespace internal {
extern std::atomic<unsigned> forks;
}  // namespace internal

// Counts the forks between the process that loaded the library and this one. An object made under
// another count belongs to another process: its descriptors are closed here, or their numbers mean
// something else.
inline unsigned process_generation() noexcept {
  return internal::forks.load(std::memory_order_relaxed);
}

// The error of a communicator that is used in a forked child.
inline constexpr std::string_view used_in_child =
    "this process is a forked child, without the connections and threads of the communicator that "
    "its "
    "parent made: connect in the child, or leave all communication to the parent";

}  // namespace rondo::base

// SPDX-License-Identifier: Apache-2.0
//
// Knows which descriptors of this process are Rondo's. A child made by fork() inherits them all. If
// the child kept them, the peers of a rank that has died would see open connections while the child
// lives. So the child closes them at once (pthread_atfork).
//
// This is state of the whole process because fork() copies the process, not one communicator. It is
// a table of bits, one for each number below 2^20. It takes no lock and allocates nothing, because
// a child of a process with threads may do neither. A descriptor that another thread opens during
// the fork may be missed. Thread-safe.
#pragma once

#include <atomic>
#include <string_view>

namespace rondo::base {

void add_own_descriptor(int number) noexcept;
// Call it before the descriptor is closed or given away: another thread may get the number at once.
void remove_own_descriptor(int number) noexcept;

// In a child that was made without the handlers of fork() (clone, _Fork): closes what its parent
// had, as the handlers do. In any other process it does nothing. A child calls it before it starts
// threads or opens anything here. A child of vfork() must not call it: it would change the table of
// its parent. Async-signal-safe.
void leave_parent() noexcept;

namespace internal {
extern std::atomic<unsigned> forks;
}  // namespace internal

// Counts the forks between the process that loaded the library and this one. An object that was
// made with another count belongs to another process: its descriptors are closed here, and their
// numbers may be in use for something else.
inline unsigned process_generation() noexcept {
  return internal::forks.load(std::memory_order_relaxed);
}

// The error text of a communicator that is used in a forked child.
inline constexpr std::string_view used_in_child =
    "this process is a forked child, without the connections and threads of the communicator that "
    "its "
    "parent made: connect in the child, or leave all communication to the parent";

}  // namespace rondo::base

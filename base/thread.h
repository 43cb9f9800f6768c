// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>

namespace rondo::base {

// Starts every thread of the library. All signals are blocked in it, so that the program's handlers
// run on the program's own threads. It computes in the default state (default_floats.h). Debuggers
// and top show its name (at most 15 characters).
// Throws Error(system) when the system cannot start one, with the limit of threads if that is the
// cause. Thread-safe.
std::thread start_thread(const char* name, std::function<void()> body);

// How often the calling thread has lost its core although it wanted to go on: to another thread at
// the end of a time slice, or by a yield. Makes one system call.
long involuntary_switches() noexcept;

}  // namespace rondo::base

// SPDX-License-Identifier: Apache-2.0
//
// Failures that tests ask for, and the functions that may block. Thread-safe, quiet.
#pragma once

#include <string>

namespace fake {

void fail_calls(const std::string& function, unsigned nth, int times, int status);
void forget_failures();
// Counts any call, also one in a forked child. Async-signal-safe.
void count_call();
// Counts a call of the function, and returns the status that it must fail with, or 0.
int next_failure(const char* function);
unsigned long calls_of(const std::string& function);

// While on, calls of this function, which may block, do.
void stall_calls(const std::string& function, bool on);
// The function may block in CUDA, and does while it is stalled. Aborts if the thread forbids it.
void may_block(const char* function);
void forbid_blocking(bool on);
unsigned long blocking_calls();

}  // namespace fake

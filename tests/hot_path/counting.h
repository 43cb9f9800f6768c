// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rondo::testing {

// Allocations (malloc and all that calls it, operator new included) by any thread of this program
// since it began. Thread-safe, as the other function is.
std::uint64_t allocations() noexcept;

// true: the next allocation prints its stack, to find the code that breaks the law of the hot path.
void report_next_allocation(bool report) noexcept;

// Allocations of a thread are not counted while `inside` returns other than 0 there. It must not
// allocate. null: all are counted.
void leave_out_allocations(int (*inside)()) noexcept;

}  // namespace rondo::testing

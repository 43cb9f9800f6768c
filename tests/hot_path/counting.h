// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rondo::testing {

// Allocations (malloc and all that calls it, operator new included) by any thread of this program
// since it began. Thread-safe, as the other function is.
std::uint64_t allocations() noexcept;

// true: the next allocation prints its stack, to find the code that breaks the law of the hot path.
void report_next_allocation(bool report) noexcept;

}  // namespace rondo::testing

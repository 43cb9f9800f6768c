// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rondo::testing {

// Allocations (malloc and whatever ends there, operator new included) by any thread of this program
// since it began.
std::uint64_t allocations() noexcept;

// From now on the first allocation prints its stack; for finding who breaks the law.
void report_next_allocation(bool report) noexcept;

}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
//
// Whether all ranks gave the same number, shown by a sum that is under way anyway: eight f64 elements more in its payload, and no message
// of its own. Only when they did not is there another collective, which names them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <rondo/communicator.h>

namespace rondo {

inline constexpr std::size_t agreement_elements = 8;

// Writes what this rank gives: each of the four 16-bit parts of the number, and its square. All 64 bits travel: different numbers never
// agree.
RONDO_API void put_agreement(std::span<double, agreement_elements> out, std::uint64_t number) noexcept;

// Of the sums over `size` ranks (at most 2^21), whether all gave the same: the same answer on every rank.
RONDO_API bool agreed(std::span<const double, agreement_elements> sums, int size) noexcept;

// For when they did not: collective, on every rank of the communicator. Throws Error(mismatch): subject, then what each group of ranks
// said: "batch norm: ranks differ: rank 2 is at layer bn4, step 7; ranks 0, 1, 3 are at layer bn3, step 7". The first 240 bytes of `mine`
// travel; where it begins with "is ", several ranks get "are ".
[[noreturn]] RONDO_API void throw_disagreement(Communicator& communicator, std::string_view subject,
                                               std::string_view mine, Priority priority = Priority::urgent);

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Finds out whether all ranks gave the same number. It needs no collective of its own: eight f64
// elements travel in a sum that runs anyway. Only if the numbers differ does another collective
// run, which names the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <rondo/communicator.h>

namespace rondo {

inline constexpr std::size_t agreement_elements = 8;

// Writes this rank's number: each of its four 16-bit parts, and the square of each. All 64 bits
// travel, so different numbers never agree.
RONDO_API void put_agreement(std::span<double, agreement_elements> out,
                             std::uint64_t number) noexcept;

// Reads the sums over `size` ranks (at most 2^21). Returns true if all gave the same number. The
// answer is the same on every rank.
RONDO_API bool agreed(std::span<const double, agreement_elements> sums, int size) noexcept;

// Call it on every rank when agreed() is false. Collective. Throws Error(mismatch) with the subject
// and what each group of ranks said: "batch norm: ranks differ: rank 2 is at layer bn4, step 7;
// ranks 0, 1, 3 are at layer bn3, step 7". The first 240 bytes of `mine` travel. If it begins with
// "is ", a group of several ranks gets "are ".
[[noreturn]] RONDO_API void throw_disagreement(Communicator& communicator, std::string_view subject,
                                               std::string_view mine,
                                               Priority priority = Priority::urgent);

}  // namespace rondo

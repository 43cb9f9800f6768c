// SPDX-License-Identifier: Apache-2.0
//
// Whether all ranks gave the same number, shown by a sum that is under way anyway: two f64 elements more in its payload, and no message of
// its own. Only when they did not is there another collective, which names them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <rondo/communicator.h>

namespace rondo {

inline constexpr std::size_t agreement_elements = 2;

// Writes what this rank gives: the number, folded to 20 bits, and its square. Different numbers fold alike once in 2^20, which is why small
// ones (a layer, a step) are folded into themselves.
RONDO_API void put_agreement(std::span<double, agreement_elements> out, std::uint64_t number) noexcept;

// Of the two sums over `size` ranks (at most 8192), whether all gave the same: the same answer on every rank.
RONDO_API bool agreed(std::span<const double, agreement_elements> sums, int size) noexcept;

// For when they did not: collective, on every rank of the communicator. Throws Error(mismatch): subject, then what each group of ranks
// said: "batch norm: ranks differ: rank 2 is at layer bn4, step 7; ranks 0, 1, 3 are at layer bn3, step 7". The first 240 bytes of `mine`
// travel; where it begins with "is ", several ranks get "are ".
[[noreturn]] RONDO_API void throw_disagreement(Communicator& communicator, std::string_view subject,
                                               std::string_view mine, Priority priority = Priority::urgent);

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Values whose reduction is known exactly in any order, because every partial sum and product is
// representable in the type. They repeat with a prime period, so that a slice in a wrong place is
// noticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <rondo/types.h>

#include "transports/transport.h"

namespace rondo::testing {

inline constexpr std::size_t period = 251;  // elements
inline constexpr int most_exact_ranks = 8;

// Hashes three numbers.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) noexcept;

// Returns the element of a floating-point type nearest to the value (ties to even), in the low
// bits. A finite value must be in range; f8e4m3 has no infinity.
std::uint64_t encode(DType type, double value);

// One period of a rank's input, and of the result. Thread-safe; the reference stays valid.
const transports::Blob& contribution(DType type, ReduceOp op, int rank);
const transports::Blob& reduction(DType type, ReduceOp op, int size,
                                  std::optional<double> scale = std::nullopt);

// Writes elements first, first + 1, ... of the endlessly repeated pattern.
void tile(std::byte* out, const transports::Blob& pattern, std::size_t element_bytes,
          std::size_t first, std::size_t count);
// Compares elements with the repeated pattern. Describes the first difference; empty when equal.
std::string difference(const std::byte* data, const transports::Blob& pattern,
                       std::size_t element_bytes, std::size_t first, std::size_t count);

}  // namespace rondo::testing

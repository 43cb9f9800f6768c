// SPDX-License-Identifier: Apache-2.0
//
// Values whose reduction is known exactly, whatever the order: every partial sum and product of
// them is representable in its type. They repeat with a prime period, so that a slice in the wrong
// place shows.
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

// Well mixed bits of three numbers.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) noexcept;

// The element of a floating-point type nearest to the value (ties to even), in the low bits. For
// finite values in range.
std::uint64_t encode(DType type, double value);

// One period of what a rank puts in, and of what must come out. Thread-safe; the reference stays
// good.
const transports::Blob& contribution(DType type, ReduceOp op, int rank);
const transports::Blob& reduction(DType type, ReduceOp op, int size,
                                  std::optional<double> scale = std::nullopt);

// Elements first, first + 1, ... of the endless repetition of a pattern.
void tile(std::byte* out, const transports::Blob& pattern, std::size_t element_bytes,
          std::size_t first, std::size_t count);
// What is wrong with these elements; empty when nothing is.
std::string difference(const std::byte* data, const transports::Blob& pattern,
                       std::size_t element_bytes, std::size_t first, std::size_t count);

}  // namespace rondo::testing

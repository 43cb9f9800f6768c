// SPDX-License-Identifier: Apache-2.0
//
// Random values of very different magnitudes, so that the order of a sum shows in its bits, and
// their sum in rank order.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/types.h>

#include "transports/transport.h"

namespace rondo::testing {

inline constexpr DType summed_types[] = {DType::f64, DType::f32, DType::f16, DType::bf16,
                                         DType::f8e4m3};

// What becomes of a sum.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  std::optional<double> scale{};
};
inline constexpr Reduction reductions[] = {
    {ReduceOp::sum, {}}, {ReduceOp::mean, {}}, {ReduceOp::sum, 0.3}, {ReduceOp::mean, 1.7}};
inline constexpr std::size_t reduction_count = std::size(reductions);

// Of one type, for one number of ranks: each element is by itself, so that any part of the buffers
// has that part of the sums.
struct Inputs {
  Inputs(DType its_type, int size, std::size_t its_count);
  // What is wrong with elements first, first + 1, ... of this reduction; empty when nothing is.
  // Compares hashes.
  std::string difference(std::span<const std::byte> out, std::size_t reduction,
                         std::size_t first) const;
  std::span<const std::byte> sum(std::size_t reduction, std::size_t first,
                                 std::size_t elements) const;

  DType type;
  std::size_t count;
  std::vector<transports::Blob> by_rank;
  std::vector<transports::Blob> sums;  // by reduction: ((0 + 1) + 2) + ..., rounded after every
                                       // addition, finished in the last one
};

}  // namespace rondo::testing

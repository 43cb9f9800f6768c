// SPDX-License-Identifier: Apache-2.0
//
// Random values of very different magnitudes, so that the bits of a sum depend on its order, and
// their sums in rank order.
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

// A kind of reduction: the sum, perhaps divided or scaled, perhaps with scales of the inputs.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  std::optional<double> scale{};
  bool scales_inputs = false;

  // OpOptions::input_scale of a rank.
  std::optional<double> input_scale(std::size_t rank) const {
    constexpr std::optional<double> scales[] = {0.3, {}, -0.7, 1.2, 0.05};
    return scales_inputs ? scales[rank % 5] : std::nullopt;
  }
};
inline constexpr Reduction reductions[] = {{ReduceOp::sum, {}},       {ReduceOp::mean, {}},
                                           {ReduceOp::sum, 0.3},      {ReduceOp::mean, 1.7},
                                           {ReduceOp::sum, {}, true}, {ReduceOp::mean, 1.7, true}};
inline constexpr std::size_t reduction_count = std::size(reductions);

// Inputs of one type for one number of ranks. Elements are independent, so that any part of the
// buffers gives that part of the sums.
struct Inputs {
  Inputs(DType its_type, int size, std::size_t its_count);
  // Describes the first wrong one of elements first, first + 1, ... of this reduction; empty when
  // all are right. Compares hashes first.
  std::string difference(std::span<const std::byte> out, std::size_t reduction,
                         std::size_t first) const;
  std::span<const std::byte> sum(std::size_t reduction, std::size_t first,
                                 std::size_t elements) const;

  DType type;
  std::size_t count;
  std::vector<transports::Blob> by_rank;
  std::vector<transports::Blob> sums;  // by reduction: ((0 + 1) + 2) + ..., rounded after every
                                       // addition, divided and scaled in the last one
};

}  // namespace rondo::testing

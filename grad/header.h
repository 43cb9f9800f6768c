// SPDX-License-Identifier: Apache-2.0
//
// The header of a step: a sum over ranks of a few f64, which arrives while the backward pass runs,
// and the plan that follows from it. Buckets start once the header has arrived, so no bucket
// travels in a step in which ranks do not agree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <rondo/agreement.h>
#include <rondo/gradients.h>

namespace rondo::grad {

// Sums of weights, of ranks with weight, of squares of weights, and of ranks that name unused
// parameters; then agreements on weight, step, check and buckets.
inline constexpr std::size_t header_elements = 4 + 4 * agreement_elements;
using HeaderValues = std::array<double, header_elements>;

// `buckets`: a number that tells several GradientBuckets apart.
HeaderValues make_header(std::uint64_t buckets, std::uint64_t step, const StepOptions& options);

// The plan of a step: how all ranks reduce their buckets, and this rank's own factors.
struct StepPlan {
  bool same_buckets = true;
  bool agreed = true;  // on buckets, step and check; otherwise the rest is not valid
  int active = 0;      // ranks that take part
  bool same_weights = true;
  bool hints = false;  // some rank has named unused parameters
  ReduceOp op = ReduceOp::sum;
  std::optional<double> scale;  // of the collective
  double factor = 1;            // OpOptions::input_scale of the collective
  bool silent = false;          // this rank contributes zeros
  // Factors for gradients that are rounded to a wire type. They are so small that no sum overflows
  // unless the result does.
  double wire_factor = 1, wire_scale = 1;  // before, and after
};

StepPlan make_plan(const HeaderValues& sums, Averaging averaging, double weight, int size);

}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
//
// What ranks tell each other at the start of a step: a sum of a few f64 that arrives while the
// backward pass runs, and what follows from it. Buckets start once it is there, so that no bucket
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

// weights, ranks with weight, squares of weights, ranks with hints of unused parameters; whether
// the same: weights, step, check, buckets
inline constexpr std::size_t header_elements = 4 + 4 * agreement_elements;
using HeaderValues = std::array<double, header_elements>;

// `buckets`: a number that tells several GradientBuckets apart.
HeaderValues make_header(std::uint64_t buckets, std::uint64_t step, const StepOptions& options);

// What every rank does alike with its buckets, and what this rank multiplies with.
struct StepPlan {
  bool same_buckets = true;
  bool agreed = true;  // about buckets, step and check; the rest counts only then
  int active = 0;      // ranks that take part
  bool same_weights = true;
  bool hints = false;  // some rank has named unused parameters
  ReduceOp op = ReduceOp::sum;
  std::optional<double> scale;  // of the collective
  double factor = 1;            // of this rank's gradients before they travel
  bool silent = false;          // this rank contributes zeros
  // The same for gradients that are rounded to a wire type: small enough that no sum of them
  // overflows where the result would not.
  double wire_factor = 1, wire_scale = 1;  // before, and after
};

StepPlan make_plan(const HeaderValues& sums, Averaging averaging, double weight, int size);

}  // namespace rondo::grad

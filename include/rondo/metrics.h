// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <rondo/communicator.h>

namespace rondo {

// A mean as numerator and denominator: a loss and its samples, or hits and tries. Do not add means
// of ranks: that is wrong if ranks have different numbers of samples. Adding numerators and
// denominators is right.
struct WeightedMean {
  double sum = 0;
  double weight = 0;

  void add(double value, double by_weight = 1) noexcept {
    if (by_weight == 0) return;  // also if the value is NaN
    sum += value * by_weight;
    weight += by_weight;
  }
  // NaN if nothing was added.
  double mean() const noexcept { return sum / weight; }
};

// Replaces each metric by its sum over ranks: one collective for all of them, in the urgent lane.
// Every rank must give equally many. A metric of weight 0 whose sum is not finite (a mean over
// nothing) adds nothing. Throws Error.
RONDO_API void reduce_metrics(Communicator& communicator, std::span<WeightedMean> metrics);

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Combines two values, each a rank's input or a sum of several. An input may have a factor of its
// rank (OpOptions::input_scale), by which it is multiplied when it is loaded.
//
// Sums of short floats are rounded to their type from rank to rank, and some overflow soon: f16
// ends at 65,504, f8 at 448 or 57,344. When the result is made smaller at the end, as for a mean,
// the sum must not overflow before that. So each input is also multiplied by a power of two when it
// is loaded, and the end multiplies by the rest. A mean then never overflows on its way, whatever
// the algorithm. With another scale and a result that the type can hold, a partial sum overflows
// only where values of different signs make it larger than the whole sum. Other types keep their
// inputs: sums of bf16 overflow where f32 does.
#pragma once

#include <cstddef>

#include "collectives/kernels/reduce.h"

namespace rondo::kernels {

// Constant after construction, so any number of threads may use it at once. Nothing fails.
class PairReduction {
 public:
  PairReduction() = default;
  // scale: multiplies the result. A mean is also divided by `ranks`. Requires supports(type, op).
  PairReduction(DType type, ReduceOp op, double scale, std::size_t ranks) noexcept;

  struct Value {
    const std::byte* data;
    bool input;  // one rank's input, not combined yet
    // An input has its rank's factor. If it is not 1, the type is a float and the op sum or mean.
    double factor = 1;
  };
  // out = first op second. last: the result holds every rank's input, so it is also finished. out
  // may be first or second.
  void combine(std::byte* out, const Value& first, const Value& second, std::size_t count,
               bool last) const noexcept;
  // Finishes a value that was combined before. value.input: it is the input of the only rank.
  void finish(std::byte* out, const Value& value, std::size_t count) const noexcept;
  bool finishes() const noexcept { return rest_.needed(); }
  // All inputs are multiplied by this when they are loaded, beside the factors of their ranks: a
  // power of two, at most 1.
  double input_factor() const noexcept { return load_; }
  // Finishes a combination of such inputs.
  const Finish& finish_of_sums() const noexcept { return rest_; }

 private:
  double factor_of(const Value& value) const noexcept {
    return value.input ? load_ * value.factor : 1;
  }

  ReduceFunction reduce_ = nullptr;
  ScaledSum scaled_sum_ = nullptr;  // of floats
  double load_ = 1;                 // the factor for all inputs
  Finish whole_, rest_;             // for unchanged inputs; for values multiplied by load_
};

}  // namespace rondo::kernels

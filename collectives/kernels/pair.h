// SPDX-License-Identifier: Apache-2.0
//
// Combines two values, each a rank's input or a sum of several. Sums of short floats that overflow
// soon (f16 ends at 65,504, f8 at 448 or 57,344) are rounded to their type from rank to rank. When
// the result is made smaller at the end, as for a mean, each input is therefore multiplied by a
// power of two as it is loaded, and the end multiplies by the rest. So a result that the type can
// hold never overflows on its way, whatever the algorithm. Other types keep their inputs: sums of
// bf16 overflow where f32 does.
#pragma once

#include <cstddef>

#include "collectives/kernels/reduce.h"

namespace rondo::kernels {

class PairReduction {
 public:
  PairReduction() = default;
  // scale: of the result; a mean is also divided by `ranks`. The operation must reduce.
  PairReduction(DType type, ReduceOp op, double scale, std::size_t ranks) noexcept;

  // out = first op second; `last` also finishes it, when it holds every rank's input. out may be
  // either of them.
  struct Value {
    const std::byte* data;
    bool input;  // of one rank, not combined yet
  };
  void combine(std::byte* out, const Value& first, const Value& second, std::size_t count,
               bool last) const noexcept;
  // Finishes a value that was combined elsewhere; `input`: the only rank's own.
  void finish(std::byte* out, const Value& value, std::size_t count) const noexcept;
  bool finishes() const noexcept { return rest_.needed(); }

 private:
  ReduceFunction reduce_ = nullptr;
  ScaledSum scaled_sum_ = nullptr;  // where inputs are made smaller
  float load_ = 1;
  Finish whole_, rest_;  // of inputs as they are; of what has been made smaller
};

}  // namespace rondo::kernels

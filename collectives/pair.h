// SPDX-License-Identifier: Apache-2.0
//
// Combining two values of which each is a rank's input or a sum of several. Sums of the short floats that overflow soon (f16 ends at
// 65,504, f8 at 448 or 57,344) are rounded to their type from rank to rank; where the result is made smaller at the end, as a mean is,
// each input is therefore made smaller as it is loaded, by a power of two, and the end multiplies by the rest. So a result that the
// type can hold never overflows on its way, whatever the algorithm. Other types keep their inputs: sums of bf16 overflow where f32 does.
#pragma once

#include <cstddef>

#include "collectives/reduce.h"

namespace rondo {

class PairReduction {
 public:
  PairReduction() = default;
  // scale: of the result, of which a mean is divided by `ranks` too. The operation reduces.
  PairReduction(DType type, ReduceOp op, double scale, std::size_t ranks) noexcept;

  // out = first op second, finished when it holds every rank's. out may be either of them.
  struct Value {
    const std::byte* data;
    bool input;  // of one rank, not combined yet
  };
  void combine(std::byte* out, const Value& first, const Value& second, std::size_t count,
               bool last) const noexcept;
  // What one rank has combined with all others before becomes the result; `input`: it is the only rank.
  void finish(std::byte* out, const Value& value, std::size_t count) const noexcept;
  bool finishes() const noexcept { return rest_.needed(); }

 private:
  ReduceFunction reduce_ = nullptr;
  ScaledSum scaled_sum_ = nullptr;  // where inputs are made smaller
  float load_ = 1;
  Finish whole_, rest_;  // of inputs as they are; of what has been made smaller
};

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// The mean of integers is exact, whatever their values: sums travel between ranks in parts of 64
// bits (integer_sum.h), and are divided once they are complete.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/kernels/reduce.h"

namespace rondo::kernels {

// All functions are thread-safe, and nothing needs alignment.
struct IntegerMean {
  std::size_t parts;  // i64 numbers for each element, added as i64
  // Makes the parts of each element. `from` may be the last bytes of `to`.
  void (*split)(std::byte* to, const std::byte* from, std::size_t count);
  // Makes the means from the sums of the parts of all ranks. `to` may be the first bytes of `from`.
  void (*join)(std::byte* to, const std::byte* from, std::size_t count, std::size_t ranks);
  ReduceFunction reduce;  // of the inputs of all ranks at once: divides by finish.divide

  std::size_t bytes() const noexcept { return parts * sizeof(std::int64_t); }
};

// Null unless the op is mean and the type an integer.
const IntegerMean* find_integer_mean(DType type, ReduceOp op) noexcept;

}  // namespace rondo::kernels

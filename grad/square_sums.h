// SPDX-License-Identifier: Apache-2.0
//
// Sums of squares on the processor, in the order of square_order.h. Reentrant. Nothing is
// allocated.
#pragma once

#include <cstddef>
#include <span>

#include <rondo/types.h>

#include "grad/square_order.h"

namespace rondo::grad {

// sums[b] = the sum of the squares of block b. Elements are f64, f32, f16 or bf16, and aligned as
// such. The first one is the first of a block; sums has square_blocks(count) elements.
void sum_squares(const void* elements, DType type, std::size_t count, double* sums);

// Adds up the sums of all blocks, which come in rising order.
class BlockTotal {
 public:
  void add(double block) noexcept { columns_[added_++ % square_line] += block; }
  double total() const noexcept;

 private:
  double columns_[square_line] = {};
  std::size_t added_ = 0;
};
double total_of(std::span<const double> blocks) noexcept;

// Throws Error(invalid_argument) for types that sum_squares() does not take.
void check_has_norm(DType type);
// The sum of the squares of a whole gradient. Throws as check_has_norm() does.
double square_sum(const void* elements, DType type, std::size_t count);

}  // namespace rondo::grad

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

// Adds up the sums of all blocks of a gradient.
double total_of(std::span<const double> blocks) noexcept;

}  // namespace rondo::grad

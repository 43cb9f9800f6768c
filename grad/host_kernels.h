// SPDX-License-Identifier: Apache-2.0
//
// The kernels of gradient buckets on the processor, with the bits of those for GPUs
// (device/kernels.h). Reentrant. Nothing is allocated.
#pragma once

#include <cstddef>
#include <span>

#include <rondo/types.h>

#include "grad/device/launches.h"

namespace rondo::grad {

// Makes the pass at once.
void run_on_host(const Pass& pass, std::span<const Piece> pieces);

// wire[i] = gradient[i] * scale, in f32, rounded to nearest even to the wire type, which is any
// that f32 converts to. The two do not overlap. Returns whether the wire type is f16 and an element
// of the gradient is too large for that (overflows_f16()).
bool encode_wire(const float* gradient, double scale, void* wire, DType wire_type,
                 std::size_t count);
// gradient[i] = wire[i] * scale. The two do not overlap.
void decode_wire(const void* wire, DType wire_type, double scale, float* gradient,
                 std::size_t count);

// sums[b] = the sum of the squares of block b (arithmetic.h). Elements are f64, f32, f16 or bf16,
// and aligned as such. The first one is the first of a block; sums has square_blocks(count)
// elements.
void sum_squares(const void* elements, DType type, std::size_t count, double* sums);
// Adds up the sums of all blocks.
double total_of(std::span<const double> blocks) noexcept;

}  // namespace rondo::grad

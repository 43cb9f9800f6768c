// SPDX-License-Identifier: Apache-2.0
//
// Parameters, statistics and gradients in memory of the caller, of f64, f32, f16 or bf16, as the
// f64 in which batch norm computes. Thread-safe functions that allocate nothing. Buffers may have
// any alignment.
#pragma once

#include <span>

#include <rondo/types.h>

namespace rondo::statistics {

// Parameters and running statistics of a layer, wherever they lie. Count 0: there is none.
struct LayerBuffers {
  Buffer gamma, beta, running_mean, running_variance;
};

bool is_float_of_layer(DType type) noexcept;  // f64, f32, f16, bf16

// Both sides have the same number of elements.
void read_values(const Buffer& from, std::span<double> to);
// Rounds to nearest even; for f16 and bf16 first to f32.
void write_values(std::span<const double> from, const Buffer& to);

}  // namespace rondo::statistics

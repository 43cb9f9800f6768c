// SPDX-License-Identifier: Apache-2.0
//
// The loops of batch norm over one element type, for one instruction set. A run is contiguous
// elements of one channel; rows are rows of `channels` elements, one of each channel. Elements of
// f64 are computed in f64, others in f32; sums are f64. point and mean are values of f32, except
// for elements of f64 and f32.
#pragma once

#include <cstddef>

#include <rondo/types.h>

#include "base/processor.h"

namespace rondo::layer {

// Five arrays of [channels], one behind the other, in the type of the computation: center, scale,
// slope, shift and gradient_center (coefficients.h). Forward uses neither slope nor
// gradient_center.
struct Coefficients {
  const void* lines;
  std::size_t channels;
};

// Adds the sums of (x - point) and (x - point)^2 to first and second; in backward those of dy and
// dy * (x - point).
using RunSums = void(const void* x, const void* dy, std::size_t count, double point, double& first,
                     double& second);
using RowsSums = void(const void* x, const void* dy, std::size_t rows, std::size_t channels,
                      const double* points, double* first, double* second);
// Writes y or dx, which may be an input. streamed: it is stored past the cache.
using RunMap = void(const void* x, const void* dy, void* out, std::size_t count,
                    const Coefficients& by_channel, std::size_t channel, bool streamed);
using RowsMap = void(const void* x, const void* dy, void* out, std::size_t rows,
                     std::size_t channels, const Coefficients& by_channel, bool streamed);

// The loops of forward, which use no dy, or of backward.
struct Loops {
  RunSums* run_sums;
  RowsSums* rows_sums;
  RunMap* run_map;
  RowsMap* rows_map;
};

struct Kernels {
  Loops forward, backward;
  void (*fence)();  // after streamed outputs, on the same thread
};

// Returns the kernels for f64, f32, f16 or bf16. The processor must have the instruction set.
const Kernels& kernels_of(base::Isa isa, DType type) noexcept;
// Returns the kernels of base::best_isa(), which RONDO_ISA can lower.
const Kernels& best_kernels(DType type) noexcept;

// One function for each library of kernels.
const Kernels& scalar_kernels(DType type) noexcept;
const Kernels& avx2_kernels(DType type) noexcept;
const Kernels& avx512_kernels(DType type) noexcept;

}  // namespace rondo::layer

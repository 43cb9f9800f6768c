// SPDX-License-Identifier: Apache-2.0
//
// Three functions for each instruction set. They return the kernel for (type, op), for scaled sums
// of a type, and for a conversion (from, to), or null where there is none. The caller has checked
// that the processor has the instructions. Each instruction set is compiled with its own -m flags.
// Its headers must therefore keep all functions in an anonymous namespace: otherwise the linker may
// give AVX-512 code to a caller on a processor without it.
#pragma once

#include "collectives/kernels/convert.h"
#include "collectives/kernels/reduce.h"

namespace rondo::kernels {

ReduceFunction scalar_kernel(DType type, ReduceOp op) noexcept;
ReduceFunction avx2_kernel(DType type, ReduceOp op) noexcept;
ReduceFunction avx512_kernel(DType type, ReduceOp op) noexcept;

ScaledSum scalar_scaled_sum(DType type) noexcept;
ScaledSum avx2_scaled_sum(DType type) noexcept;
ScaledSum avx512_scaled_sum(DType type) noexcept;

ConvertFunction scalar_convert(DType from, DType to) noexcept;
ConvertFunction avx2_convert(DType from, DType to) noexcept;
ConvertFunction avx512_convert(DType from, DType to) noexcept;

}  // namespace rondo::kernels

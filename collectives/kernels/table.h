// SPDX-License-Identifier: Apache-2.0
//
// Three functions per instruction set: the kernel of (type, op), that of scaled sums, and the one
// of (from, to); null where there is none. The caller has checked that the processor has the
// instructions. Each is compiled with its own -m flags. Everything it includes must therefore keep
// its functions in an anonymous namespace, or the linker may hand AVX-512 code to a caller that
// never asked for it.
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

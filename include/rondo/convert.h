// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <rondo/export.h>
#include <rondo/types.h>

namespace rondo {

// out[i] = in[i] in another floating-point type, rounded to nearest even, at memory speed (AVX2 or
// AVX-512 where there is). The two must not overlap, except in == out with equal types. One of them
// must be f32, or both the same. Throws Error(invalid_argument) otherwise. A NaN becomes some NaN;
// too large for out_type becomes infinity, in f8e4m3 NaN. Nothing needs alignment.
RONDO_API void convert(const void* in, DType in_type, void* out, DType out_type, std::size_t count);

}  // namespace rondo

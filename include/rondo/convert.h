// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <rondo/export.h>
#include <rondo/types.h>

namespace rondo {

// Converts `count` elements: out[i] = in[i] in another floating-point type, rounded to nearest
// even, at memory speed (with AVX2 or AVX-512 if the processor has it). One of the types must be
// f32, or both must be the same. in and out must not overlap, except in == out with equal types.
// Else throws Error(invalid_argument). A NaN becomes a NaN. A value too large for out_type becomes
// infinity; in f8e4m3, which has none, NaN. in and out may have any alignment. Thread-safe.
RONDO_API void convert(const void* in, DType in_type, void* out, DType out_type, std::size_t count);

}  // namespace rondo

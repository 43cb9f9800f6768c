// SPDX-License-Identifier: Apache-2.0
//
// Conversions between floating-point types, chosen once for this processor, as the reduction
// kernels are.
#pragma once

#include "collectives/kernels/reduce.h"

namespace rondo::kernels {

// out[i] = in[i], rounded to nearest even; a NaN becomes some NaN. f8e4m3 overflow gives NaN,
// f8e5m2 infinity (OFP8). Nothing needs alignment. in and out must not overlap.
using ConvertFunction = void (*)(std::byte* out, const std::byte* in, std::size_t count);

// Null unless one of two different types is f32 and the other a floating-point type, or where the
// processor lacks the isa. scalar is the oracle: the others give the same bits, but for which NaN
// it is.
ConvertFunction find_convert(DType from, DType to, base::Isa isa = base::best_isa()) noexcept;

}  // namespace rondo::kernels

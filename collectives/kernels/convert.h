// SPDX-License-Identifier: Apache-2.0
//
// Conversions between floating-point types, chosen once for this processor, like the reduction
// kernels. Thread-safe.
#pragma once

#include "collectives/kernels/reduce.h"

namespace rondo::kernels {

// out[i] = in[i], rounded to nearest even; a NaN becomes some NaN. Overflow gives NaN in f8e4m3 and
// infinity in f8e5m2 (OFP8). Nothing needs alignment. in and out must not overlap.
using ConvertFunction = void (*)(std::byte* out, const std::byte* in, std::size_t count);

// Null unless one type is f32 and the other is another floating-point type. Null also where the
// processor lacks the isa. scalar is the reference: the others give the same bits, except for which
// NaN it is.
ConvertFunction find_convert(DType from, DType to, base::Isa isa = base::best_isa()) noexcept;

}  // namespace rondo::kernels

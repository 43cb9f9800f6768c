// SPDX-License-Identifier: Apache-2.0
//
// Converts gradients to the type in which they travel, and back. All functions are reentrant.
#pragma once

#include <cstddef>

#include <rondo/types.h>

namespace rondo::grad {

// wire[i] = gradient[i] * scale, in f32, rounded to nearest even to the wire type, which is any
// that f32 converts to. The two do not overlap. Returns whether the wire type is f16 and an element
// of the gradient is too large for that (overflows_f16()).
bool encode_wire(const float* gradient, double scale, void* wire, DType wire_type,
                 std::size_t count);

// gradient[i] = wire[i] * scale. The two do not overlap.
void decode_wire(const void* wire, DType wire_type, double scale, float* gradient,
                 std::size_t count);

}  // namespace rondo::grad

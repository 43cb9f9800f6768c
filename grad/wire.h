// SPDX-License-Identifier: Apache-2.0
//
// Converts gradients to the type in which they travel, and back. All functions are reentrant.
#pragma once

#include <cstddef>

#include <rondo/types.h>

namespace rondo::grad {

// wire[i] = gradient[i] * scale * unit, in f32, rounded to nearest even to the wire type, which is
// any that f32 converts to. The two do not overlap. unit is a power of two, so it costs no digits.
// largest, when given, rises to the largest finite |gradient[i] * scale|.
void encode_wire(const float* gradient, double scale, void* wire, DType wire_type,
                 std::size_t count, float unit = 1, float* largest = nullptr);

// Returns the largest finite absolute value, or 0 if there is none.
float largest_finite(const float* values, std::size_t count) noexcept;

// Whether one of these f16 is infinite or NaN.
bool has_non_finite_f16(const void* values, std::size_t count) noexcept;

// gradient[i] = wire[i] * scale. The two do not overlap.
void decode_wire(const void* wire, DType wire_type, double scale, float* gradient,
                 std::size_t count);

}  // namespace rondo::grad

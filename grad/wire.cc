// SPDX-License-Identifier: Apache-2.0
#include "grad/wire.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <rondo/convert.h>

#include "grad/wire_elements.h"

namespace rondo::grad {

namespace {

// So small that a tile stays in the first-level cache.
constexpr std::size_t tile = 2048;
using Tile = std::array<float, tile>;

// Bit for bit what arithmetic in f64, rounded to f32 once, gives.
void multiply(const float* in, double factor, float* out, std::size_t count) {
  if (is_f32(factor)) {
    const auto narrow = static_cast<float>(factor);
    for (std::size_t i = 0; i < count; ++i) out[i] = times(in[i], narrow);
  } else {
    for (std::size_t i = 0; i < count; ++i) out[i] = times(in[i], factor);
  }
}

bool any_overflows_f16(const float* values, std::size_t count) noexcept {
  unsigned found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= overflows_f16(values[i]) ? 1u : 0u;
  return found != 0;
}

}  // namespace

bool encode_wire(const float* gradient, double scale, void* wire, DType wire_type,
                 std::size_t count) {
  const auto factor = static_cast<float>(
      scale);  // the wire type has too few digits to show the difference from f64
  bool too_large = false;
  Tile scaled;
  for (std::size_t at = 0; at < count; at += tile) {
    const std::size_t now = std::min(tile, count - at);
    const float* values = gradient + at;
    if (wire_type == DType::f16) too_large |= any_overflows_f16(values, now);
    if (factor != 1) {
      for (std::size_t i = 0; i < now; ++i) scaled[i] = times(values[i], factor);
      values = scaled.data();
    }
    convert(values, DType::f32, static_cast<std::byte*>(wire) + at * size_of(wire_type), wire_type,
            now);
  }
  return too_large;
}

void decode_wire(const void* wire, DType wire_type, double scale, float* gradient,
                 std::size_t count) {
  if (scale == 1) return convert(wire, wire_type, gradient, DType::f32, count);
  Tile values;
  for (std::size_t at = 0; at < count; at += tile) {
    const std::size_t now = std::min(tile, count - at);
    convert(static_cast<const std::byte*>(wire) + at * size_of(wire_type), wire_type, values.data(),
            DType::f32, now);
    multiply(values.data(), scale, gradient + at, now);
  }
}

}  // namespace rondo::grad

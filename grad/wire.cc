// SPDX-License-Identifier: Apache-2.0
#include "grad/wire.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

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

float larger_finite(const float* values, std::size_t count, float largest) noexcept {
  auto most = std::bit_cast<std::uint32_t>(largest);
  for (std::size_t i = 0; i < count; ++i) most = larger_finite(most, values[i]);
  return std::bit_cast<float>(most);
}

}  // namespace

void encode_wire(const float* gradient, double scale, void* wire, DType wire_type,
                 std::size_t count, float unit, float* largest) {
  if (largest == nullptr && scale == 1 && unit == 1)
    return convert(gradient, DType::f32, wire, wire_type, count);
  const auto factor = static_cast<float>(
      scale);  // the wire type has too few digits to show the difference from f64
  Tile wanted;
  for (std::size_t at = 0; at < count; at += tile) {
    const std::size_t now = std::min(tile, count - at);
    for (std::size_t i = 0; i < now; ++i) wanted[i] = times(gradient[at + i], factor);
    if (largest != nullptr) *largest = larger_finite(wanted.data(), now, *largest);
    for (std::size_t i = 0; i < now; ++i) wanted[i] *= unit;
    convert(wanted.data(), DType::f32, static_cast<std::byte*>(wire) + at * size_of(wire_type),
            wire_type, now);
  }
}

float largest_finite(const float* values, std::size_t count) noexcept {
  return larger_finite(values, count, 0);
}

bool has_non_finite_f16(const void* values, std::size_t count) noexcept {
  const auto* const halves = static_cast<const std::uint16_t*>(values);
  constexpr std::uint16_t exponent = 0x7c00;
  unsigned found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= (halves[i] & exponent) == exponent ? 1u : 0u;
  return found != 0;
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

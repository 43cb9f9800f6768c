// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of one element that travels in a wire type. The processor (wire.cc) and GPUs
// (device/pieces.h) use it, so both give the same bits. Nothing here calls a function of the
// standard library: a GPU has none.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace rondo::grad {
namespace {

RONDO_HD inline float times(float value, float factor) noexcept {
  return value * factor;
}
RONDO_HD inline float times(float value, double factor) noexcept {
  return static_cast<float>(static_cast<double>(value) * factor);
}
// Whether the factor is an f32. Then a product of two f32 has one rounding too, as arithmetic in
// f64 has that is rounded to f32 once.
RONDO_HD inline bool is_f32(double factor) noexcept {
  return static_cast<double>(static_cast<float>(factor)) == factor;
}

// Whether an element is finite and would be infinite as f16: 65520 and more are rounded to that.
// Compilers vectorize comparisons of integers.
RONDO_HD inline bool overflows_f16(float value) noexcept {
  constexpr std::uint32_t too_large = 0x477ff000, infinity = 0x7f800000;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value) & 0x7fffffff;
  return bits - too_large < infinity - too_large;
}

}  // namespace
}  // namespace rondo::grad

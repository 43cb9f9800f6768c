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

// The larger of `most` and the bits of |value|, if that is finite. Bits of absolute values rise
// with them, and compilers vectorize comparisons of integers.
RONDO_HD inline std::uint32_t larger_finite(std::uint32_t most, float value) noexcept {
  constexpr std::uint32_t infinity = 0x7f800000;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value) & 0x7fffffff;
  const std::uint32_t finite = bits < infinity ? bits : 0;
  return finite > most ? finite : most;
}

}  // namespace
}  // namespace rondo::grad

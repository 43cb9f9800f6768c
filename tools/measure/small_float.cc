// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/small_float.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rondo::tools {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
};

Format format_of(DType type) {
  switch (type) {
    case DType::f64:
      return {11, 52};
    case DType::f32:
      return {8, 23};
    case DType::f16:
      return {5, 10};
    case DType::bf16:
      return {8, 7};
    case DType::f8e4m3:
      return {4, 3};
    default:
      return {5, 2};
  }
}

}  // namespace

std::uint64_t encode_float(DType type, double value) {
  if (type == DType::f64) return std::bit_cast<std::uint64_t>(value);
  const Format format = format_of(type);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const std::uint64_t sign = std::signbit(value) ? 1 : 0;
  std::uint64_t bits = 0;
  if (value != 0) {
    const int exponent = std::max(std::ilogb(value), 1 - bias);
    // In units of the last place. A carry out of the mantissa correctly increments the exponent.
    const double units =
        std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
    bits = static_cast<std::uint64_t>(units) +
           (static_cast<std::uint64_t>(exponent + bias - 1) << format.mantissa_bits);
  }
  return bits | sign << (format.exponent_bits + format.mantissa_bits);
}

std::uint64_t largest_exact_integer(DType type) {
  return std::uint64_t{2} << format_of(type).mantissa_bits;
}

}  // namespace rondo::tools

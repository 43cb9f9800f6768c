// SPDX-License-Identifier: Apache-2.0
//
// Converts short floats to and from f32, one at a time, by integer arithmetic. The vector kernels
// must give the same bits.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace rondo::base {
namespace {

RONDO_HD inline std::uint32_t bits_of(float value) noexcept {
  return __builtin_bit_cast(std::uint32_t, value);
}

RONDO_HD inline float float_of(std::uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}

// A binary format with a sign, ExponentBits and MantissaBits. Ieee: the largest exponent means
// infinity or NaN. Otherwise (f8e4m3) only the code of all ones is NaN, there is no infinity, and
// overflow gives NaN.
template <int ExponentBits, int MantissaBits, bool Ieee>
struct Format {
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr std::uint32_t sign = 1u << (ExponentBits + MantissaBits);
  static constexpr std::uint32_t infinity = ((1u << ExponentBits) - 1) << MantissaBits;
  static constexpr std::uint32_t all_ones = sign - 1;
  static constexpr int dropped = 23 - MantissaBits;
  static constexpr int rebias = 127 - bias;

  RONDO_HD static float decode(std::uint32_t code) noexcept {
    const std::uint32_t magnitude = code & all_ones;
    const std::uint32_t sign_bit = (code & sign) ? 0x80000000u : 0u;
    if (Ieee ? magnitude >= infinity : magnitude == all_ones) {
      const std::uint32_t payload = Ieee ? (magnitude & ~infinity) << dropped : 1u;
      return float_of(sign_bit | 0x7f800000u | payload | (payload != 0 ? 0x00400000u : 0u));
    }
    if (magnitude >> MantissaBits != 0)
      return float_of(sign_bit |
                      ((magnitude << dropped) + (static_cast<std::uint32_t>(rebias) << 23)));
    if constexpr (rebias == 0) {
      return float_of(sign_bit | (magnitude << dropped));
    } else {
      // A subnormal is `magnitude` units of 2^(1 - bias - MantissaBits), and the unit is a normal
      // f32.
      const float unit = float_of(static_cast<std::uint32_t>(rebias + 1 - MantissaBits) << 23);
      return float_of(sign_bit | bits_of(static_cast<float>(magnitude) * unit));
    }
  }

  // To nearest, ties to even.
  RONDO_HD static std::uint32_t encode(float value) noexcept {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t sign_bit = (bits >> 31) != 0 ? sign : 0u;
    if (magnitude > 0x7f800000u) return sign_bit | all_ones;
    const int exponent = static_cast<int>(magnitude >> 23);
    std::uint32_t code;
    if (exponent > rebias || rebias == 0) {
      code = shift_to_even(magnitude - (static_cast<std::uint32_t>(rebias) << 23), dropped);
    } else {
      const int shift = dropped + rebias + 1 - exponent;
      code = shift > 25 ? 0 : shift_to_even((magnitude & 0x007fffffu) | 0x00800000u, shift);
    }
    const std::uint32_t largest = Ieee ? infinity : all_ones;
    return sign_bit | (code < largest ? code : largest);
  }

 private:
  RONDO_HD static std::uint32_t shift_to_even(std::uint32_t value, int shift) noexcept {
    const std::uint32_t half = (1u << (shift - 1)) - 1 + ((value >> shift) & 1u);
    return (value + half) >> shift;
  }
};

using F16 = Format<5, 10, true>;
using BF16 = Format<8, 7, true>;
using F8E4M3 = Format<4, 3, false>;
using F8E5M2 = Format<5, 2, true>;

}  // namespace
}  // namespace rondo::base

// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of one element: what an operation gives, and how a result is finished. The scalar
// kernels and the kernels of GPUs (device/) are made from it, so both give the same bits.
//
// Nothing here calls a function of the standard library: a GPU has none. Include it only in sources
// that are compiled with -ffp-contract=off (nvcc: -fmad=false).
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/short_floats.h"
#include "collectives/kernels/finish.h"

namespace rondo::kernels {
namespace {

// The type of an element in memory, the type in which it is combined, and how a result is finished.
template <class T>
struct Native {
  using Stored = T;
  using Value = T;
  RONDO_HD static Value decode(Stored stored) noexcept { return stored; }
  RONDO_HD static Stored encode(Value value) noexcept { return value; }
  RONDO_HD static Value finish(Value value, const Finish&) noexcept { return value; }
};

template <>
RONDO_HD inline float Native<float>::finish(float value, const Finish& finish) noexcept {
  return static_cast<float>(static_cast<double>(value) * finish.multiply / finish.divide);
}

template <>
RONDO_HD inline double Native<double>::finish(double value, const Finish& finish) noexcept {
  return value * finish.multiply / finish.divide;
}

template <class Format, class Code>
struct Short {
  using Stored = Code;
  using Value = float;
  RONDO_HD static Value decode(Stored stored) noexcept { return Format::decode(stored); }
  RONDO_HD static Stored encode(Value value) noexcept {
    return static_cast<Stored>(Format::encode(value));
  }
  RONDO_HD static Value finish(Value value, const Finish& finish) noexcept {
    return value * static_cast<float>(finish.multiply) / static_cast<float>(finish.divide);
  }
};

using ElementF16 = Short<base::F16, std::uint16_t>;
using ElementBF16 = Short<base::BF16, std::uint16_t>;
using ElementF8E4M3 = Short<base::F8E4M3, std::uint8_t>;
using ElementF8E5M2 = Short<base::F8E5M2, std::uint8_t>;

// Gives every NaN that is a result the same bits: all ones but the sign. Otherwise processor and
// compiler would decide which operand's NaN an addition keeps.
template <class Value>
RONDO_HD Value with_one_nan(Value value) noexcept {
  if constexpr (std::is_floating_point_v<Value>) {
    using Bits = std::conditional_t<sizeof(Value) == 8, std::uint64_t, std::uint32_t>;
    if (value != value) return __builtin_bit_cast(Value, static_cast<Bits>(~Bits{0} >> 1));
  }
  return value;
}

// An input with its rank's factor, which is rounded to the type of the values first. Floats only.
template <class Value>
RONDO_HD Value scaled(Value value, double factor) noexcept {
  return value * static_cast<Value>(factor);
}

// Signed integers wrap because they are computed in an unsigned type of the same width or a wider
// one. Types below 32 bits would be promoted to int, where a product of two u16 overflows.
template <class T>
using Wrapping =
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>, T>;

struct Sum {
  template <class T>
  RONDO_HD static T apply(T a, T b) noexcept {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};

struct Product {
  template <class T>
  RONDO_HD static T apply(T a, T b) noexcept {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};

// IEEE 754-2019 minimum and maximum: NaN when either operand is NaN, and -0 is less than +0. So the
// order of the operands does not matter.
struct Min {
  template <class T>
  RONDO_HD static T apply(T a, T b) noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a || b != b) return a + b;
      if (a == b) return __builtin_signbit(a) ? a : b;
    }
    return a < b ? a : b;
  }
};

struct Max {
  template <class T>
  RONDO_HD static T apply(T a, T b) noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a || b != b) return a + b;
      if (a == b) return __builtin_signbit(a) ? b : a;
    }
    return a > b ? a : b;
  }
};

struct And {
  template <class T>
  RONDO_HD static T apply(T a, T b) noexcept {
    return static_cast<T>(a & b);
  }
};

struct Or {
  template <class T>
  RONDO_HD static T apply(T a, T b) noexcept {
    return static_cast<T>(a | b);
  }
};

struct Xor {
  template <class T>
  RONDO_HD static T apply(T a, T b) noexcept {
    return static_cast<T>(a ^ b);
  }
};

}  // namespace
}  // namespace rondo::kernels

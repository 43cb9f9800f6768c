// SPDX-License-Identifier: Apache-2.0
//
// Applies Finish to vectors of results. A call chooses once the cheapest form that gives the bits
// of value * multiply / divide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rondo::kernels {
namespace {

// The reciprocal of such a value is exact, also as an f32. So multiplying by it rounds the same
// real number as dividing.
inline bool is_moderate_power_of_two(double value) noexcept {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint64_t exponent = bits >> 52;
  return (bits & 0x000fffffffffffffu) == 0 && exponent > 1023 - 100 && exponent < 1023 + 100;
}

// T is the type of a vector element. InDouble: the contract is arithmetic in f64, rounded to T
// once. A single operation of two f32 may stay in f32, since rounding to f64 first would not change
// its result. The product of two f32 is exact in f64. The quotient of two f32 is never near enough
// to the middle between two f32 (53 >= 2 * 24 + 2).
template <class T, bool InDouble>
class FloatScaling {
 public:
  FloatScaling(double multiply, double divide) noexcept {
    if (multiply == 1 && is_moderate_power_of_two(divide)) {
      multiply = 1 / divide;
      divide = 1;
    }
    wide_multiply_ = multiply;
    wide_divide_ = divide;
    multiply_ = static_cast<T>(multiply);
    divide_ = static_cast<T>(divide);
    const bool exact =
        static_cast<double>(multiply_) == multiply && static_cast<double>(divide_) == divide;
    if (divide_ == 1 && divide == 1) {
      mode_ = multiply == 1 ? Mode::none : Mode::multiply;
    } else {
      mode_ = multiply == 1 ? Mode::divide : Mode::both;
    }
    if (InDouble && sizeof(T) == 4 && mode_ != Mode::none && (!exact || mode_ == Mode::both))
      mode_ = Mode::wide;
  }

  bool needed() const noexcept { return mode_ != Mode::none; }

  template <class V>
  [[gnu::always_inline]] inline void apply(V& value) const {
    switch (mode_) {
      case Mode::none:
        break;
      case Mode::multiply:
        value = value * multiply_;
        break;
      case Mode::divide:
        value = value / divide_;
        break;
      case Mode::both:
        value = value * multiply_ / divide_;
        break;
      case Mode::wide:
        if constexpr (InDouble && sizeof(T) == 4) apply_wide(value);
        break;
    }
  }

 private:
  enum class Mode { none, multiply, divide, both, wide };

  template <class V>
  void apply_wide(V& value) const {
    constexpr std::size_t lanes = sizeof(V) / sizeof(T);
    T lane[lanes];
    std::memcpy(lane, &value, sizeof value);
    if (wide_divide_ == 1) {
      for (std::size_t i = 0; i < lanes; ++i)
        lane[i] = static_cast<T>(static_cast<double>(lane[i]) * wide_multiply_);
    } else {
      for (std::size_t i = 0; i < lanes; ++i)
        lane[i] = static_cast<T>(static_cast<double>(lane[i]) * wide_multiply_ / wide_divide_);
    }
    std::memcpy(&value, lane, sizeof value);
  }

  Mode mode_;
  T multiply_, divide_;
  double wide_multiply_, wide_divide_;
};

// Integers are finished elsewhere (integer_mean.h).
class NoScaling {
 public:
  NoScaling(double, double) noexcept {}
  bool needed() const noexcept { return false; }
};

}  // namespace
}  // namespace rondo::kernels

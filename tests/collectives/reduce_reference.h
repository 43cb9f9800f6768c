// SPDX-License-Identifier: Apache-2.0
//
// Short floats by their definition alone: the fields of a code give its value, and a search for the
// nearest value gives a value's code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collectives/kernels/reduce.h"

namespace reduce_reference {

struct Layout {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};

inline Layout layout_of(rondo::DType type) {
  switch (type) {
    case rondo::DType::f16:
      return {5, 10, true};
    case rondo::DType::bf16:
      return {8, 7, true};
    case rondo::DType::f8e4m3:
      return {4, 3, false};
    default:
      return {5, 2, true};
  }
}

class ShortFloat {
 public:
  explicit ShortFloat(rondo::DType type) : layout_(layout_of(type)), bytes_(rondo::size_of(type)) {
    for (std::uint32_t code = 0; std::isfinite(value(code)); ++code) values_.push_back(value(code));
  }

  std::size_t bytes() const { return bytes_; }
  std::uint32_t codes() const { return 1u << (8 * bytes_); }
  std::uint32_t sign() const { return codes() / 2; }
  bool is_nan(std::uint32_t code) const { return std::isnan(value(code)); }
  // The values of the codes 0, 1, 2, ... up to the largest finite one, ascending.
  const std::vector<double>& finite() const { return values_; }

  double value(std::uint32_t code) const {
    const std::uint32_t mantissa_range = 1u << layout_.mantissa_bits;
    const std::uint32_t magnitude = code & (sign() - 1);
    const int exponent = static_cast<int>(magnitude / mantissa_range);
    const double mantissa = magnitude % mantissa_range;
    const int last_exponent = (1 << layout_.exponent_bits) - 1;
    const int bias = last_exponent / 2;
    double result;
    if (layout_.has_infinity && exponent == last_exponent)
      result = mantissa == 0 ? HUGE_VAL : std::nan("");
    else if (!layout_.has_infinity && magnitude == sign() - 1)
      result = std::nan("");
    else if (exponent == 0)
      result = std::ldexp(mantissa / mantissa_range, 1 - bias);
    else
      result = std::ldexp(1 + mantissa / mantissa_range, exponent - bias);
    return (code & sign()) != 0 ? -result : result;
  }

  std::uint32_t nearest(double wanted) const {
    if (std::isnan(wanted)) return sign() - 1;
    const std::uint32_t sign_bit = std::signbit(wanted) ? sign() : 0;
    const double magnitude = std::fabs(wanted);
    const auto last = static_cast<std::uint32_t>(values_.size() - 1);
    const double step = values_[last] - values_[last - 1];
    const auto above = static_cast<std::uint32_t>(
        std::lower_bound(values_.begin(), values_.end(), magnitude) - values_.begin());
    if (above == 0) return sign_bit;
    const double low = values_[above - 1];
    const double high = above <= last ? values_[above] : values_[last] + step;
    const double down = magnitude - low, up = high - magnitude;
    const bool takes_high = std::isinf(magnitude) || up < down || (up == down && above % 2 == 0);
    // last + 1 is the code of infinity, or of NaN where there is no infinity.
    return sign_bit | (takes_high ? above : above - 1);
  }

 private:
  Layout layout_;
  std::size_t bytes_;
  std::vector<double> values_;
};

inline std::uint32_t code_at(const std::vector<std::byte>& from, std::size_t index,
                             std::size_t bytes) {
  std::uint32_t code = 0;
  std::memcpy(&code, from.data() + index * bytes, bytes);
  return code;
}

inline void put_code(std::vector<std::byte>& to, std::size_t index, std::size_t bytes,
                     std::uint32_t code) {
  std::memcpy(to.data() + index * bytes, &code, bytes);
}

// min and max as promised: NaN when either operand is NaN, and -0 is less than +0.
template <class T>
T reference_min(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == 0 && b == 0) return std::signbit(a) || std::signbit(b) ? T{-0.0f} : T{0};
  return std::min(a, b);
}

template <class T>
T reference_max(T a, T b) {
  return -reference_min(-a, -b);
}

template <class T>
T reference_of(rondo::ReduceOp op, T a, T b) {
  switch (op) {
    case rondo::ReduceOp::product:
      return a * b;
    case rondo::ReduceOp::min:
      return reference_min(a, b);
    case rondo::ReduceOp::max:
      return reference_max(a, b);
    default:
      return a + b;
  }
}

// The first element that differs; count if none does.
inline std::size_t first_difference(rondo::DType type, const std::byte* a, const std::byte* b,
                                    std::size_t count) {
  const std::size_t bytes = rondo::size_of(type);
  if (std::memcmp(a, b, count * bytes) == 0) return count;
  for (std::size_t i = 0; i < count; ++i, a += bytes, b += bytes)
    if (std::memcmp(a, b, bytes) != 0) return i;
  return count;
}

// Random bits with many special values: zeros, -0, the smallest subnormals, NaN and infinities.
inline std::vector<std::byte> make_source(rondo::DType type, std::uint32_t seed,
                                          std::size_t length) {
  std::mt19937 random(seed);
  std::vector<std::byte> result(length);
  for (std::byte& byte : result) byte = static_cast<std::byte>(random());
  const std::size_t bytes = rondo::size_of(type);
  for (std::size_t at = 0; at + bytes <= result.size(); at += bytes) {
    if (random() % 4 != 0) continue;
    const std::uint32_t kind = random() % 4;
    std::memset(result.data() + at, kind == 3 ? 0xff : 0, bytes);
    if (kind == 1) result[at + bytes - 1] = std::byte{0x80};
    if (kind == 2) result[at] = std::byte{1};
    if (kind == 3) result[at + bytes - 1] = std::byte{0x7f};
  }
  return result;
}

inline std::vector<rondo::base::Isa> isas_here() {
  std::vector<rondo::base::Isa> result;
  for (const rondo::base::Isa isa :
       {rondo::base::Isa::scalar, rondo::base::Isa::avx2, rondo::base::Isa::avx512})
    if (rondo::kernels::find_reduce(rondo::DType::f32, rondo::ReduceOp::sum, isa) != nullptr)
      result.push_back(isa);
  return result;
}

}  // namespace reduce_reference

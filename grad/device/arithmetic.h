// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of one element of gradients, and the order in which squares are added. The
// processor (host_kernels.cc) and GPUs (pieces.h, squares.h) use it, so both give the same bits.
// Nothing here calls a function of the standard library but sqrt: a GPU has none.
//
// The order of squares depends on the place of an element in its range alone, so all ranks,
// layouts, processors and GPUs get the same bits. All sums are f64. A block has 4096 elements: 32
// groups of 16 rows of 8 lanes, as they lie in memory. Squares are added down each lane of a group,
// row by row. The lanes of later groups are added to those of the first, and lanes_total() adds the
// eight that remain. The last block may be shorter. The sums of blocks lie in memory likewise, in
// lines of 256: they are added down each column. A line is 32 groups of 8 lanes, which are added as
// above.
#pragma once

#include <math.h>

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "base/short_floats.h"

namespace rondo::grad {

inline constexpr std::size_t square_lanes = 8, square_rows = 16, square_groups = 32;
inline constexpr std::size_t square_group = square_lanes * square_rows;
inline constexpr std::size_t square_block = square_groups * square_group;
inline constexpr std::size_t square_line = square_groups * square_lanes;

// How many blocks so many elements have.
RONDO_HD constexpr std::uint64_t square_blocks(std::uint64_t elements) noexcept {
  return elements / square_block + (elements % square_block != 0 ? 1 : 0);
}

namespace {

RONDO_HD inline double lanes_total(const double (&lanes)[square_lanes]) noexcept {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// How the elements of gradients are stored, and the numbers that they are.
template <class Value>
struct Whole {
  using Stored = Value;
  RONDO_HD static Value decode(Value stored) noexcept { return stored; }
  RONDO_HD static Value encode(Value value) noexcept { return value; }
};
template <class Format>
struct Short {
  using Stored = std::uint16_t;
  RONDO_HD static float decode(std::uint16_t stored) noexcept { return Format::decode(stored); }
  RONDO_HD static std::uint16_t encode(float value) noexcept {
    return static_cast<std::uint16_t>(Format::encode(value));
  }
};
using F64 = Whole<double>;
using F32 = Whole<float>;
using F16 = Short<base::F16>;
using BF16 = Short<base::BF16>;

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

// As PyTorch's clip_grad_norm_. NaN where the norm is NaN.
RONDO_HD inline double clip_factor_of(double norm, double max_norm) noexcept {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

// The factor of clip(), from the sum of all squares: 1 where that is infinite or NaN, because no
// factor repairs that.
RONDO_HD inline double clip_factor_of_squares(double squares, double max_norm) noexcept {
  const double norm = ::sqrt(squares);
  return norm <= 0x1.fffffffffffffp1023 ? clip_factor_of(norm, max_norm) : 1;
}

}  // namespace
}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of one element of gradients, and the order in which squares are added. The
// processor (host_kernels.cc) and GPUs (kernels.h) use it, so both give the same bits.
// Nothing here calls a function of the standard library but sqrt: a GPU has none.
//
// The order of squares depends on the place of an element in its range alone, so all ranks,
// layouts, processors and GPUs get the same bits. All sums are f64. A block has 4096 elements: 16
// rows of 256 columns, as they lie in memory; the last block may be shorter. Squares are added down
// each column, then the columns as 32 groups of 8 lanes: down each lane, and lanes_total() adds the
// eight that remain. The sums of blocks lie in memory likewise, in as many rows as there are, and
// are added in the same way.
#pragma once

#include <math.h>

#include <cstddef>
#include <cstdint>

#include <rondo/types.h>

#include "base/host_device.h"
#include "base/short_floats.h"
#include "grad/device/arguments.h"

namespace rondo::grad {

inline constexpr std::size_t square_columns = 256, square_lanes = 8, square_rows = 16;
inline constexpr std::size_t square_block = square_rows * square_columns;

// How many blocks so many elements have.
RONDO_HD constexpr std::uint64_t square_blocks(std::uint64_t elements) noexcept {
  return elements / square_block + (elements % square_block != 0 ? 1 : 0);
}

namespace {

// Adds up a column of `count` terms. term(i) is one of them.
template <class Term>
RONDO_HD inline double column_sum(std::uint64_t count, std::uint64_t column,
                                  const Term& term) noexcept {
  double sum = 0;
  if (count == square_block) {  // unrolled; the processor makes several columns at once
    for (std::uint64_t row = 0; row < square_rows; ++row)
      sum += term(row * square_columns + column);
    return sum;
  }
  RONDO_ROLLED
  for (std::uint64_t i = column; i < count; i += square_columns) sum += term(i);
  return sum;
}
RONDO_HD inline double lane_sum(const double (&columns)[square_columns],
                                std::size_t lane) noexcept {
  double sum = 0;
  for (std::size_t i = lane; i < square_columns; i += square_lanes) sum += columns[i];
  return sum;
}
RONDO_HD inline double lanes_total(const double (&lanes)[square_lanes]) noexcept {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// How the elements of gradients are stored, and the numbers that they are.
template <class Value, DType Type>
struct Whole {
  static constexpr DType type = Type;
  using Stored = Value;
  RONDO_HD static Value decode(Value stored) noexcept { return stored; }
  RONDO_HD static Value encode(Value value) noexcept { return value; }
};
template <class Format, DType Type>
struct Short {
  static constexpr DType type = Type;
  using Stored = std::uint16_t;
  RONDO_HD static float decode(std::uint16_t stored) noexcept { return Format::decode(stored); }
  RONDO_HD static std::uint16_t encode(float value) noexcept {
    return static_cast<std::uint16_t>(Format::encode(value));
  }
};
using F64 = Whole<double, DType::f64>;
using U16 = Whole<std::uint16_t, DType::u16>;  // bits of any gradients, to be moved
using F32 = Whole<float, DType::f32>;
using F16 = Short<base::F16, DType::f16>;
using BF16 = Short<base::BF16, DType::bf16>;

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

RONDO_HD inline double factor_of(const Pass& pass) noexcept {
  return pass.squares == nullptr ? pass.factor : clip_factor_of_squares(*pass.squares, pass.factor);
}

}  // namespace
}  // namespace rondo::grad

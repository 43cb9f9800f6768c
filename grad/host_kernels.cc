// SPDX-License-Identifier: Apache-2.0
#include "grad/host_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <rondo/convert.h>

#include "base/copy.h"
#include "grad/device/arithmetic.h"

namespace rondo::grad {

namespace {

// So small that a tile stays in the first-level cache.
constexpr std::size_t tile = 2048;
using Tile = std::array<float, tile>;

void move(const Piece& piece) noexcept {
  const auto bytes = static_cast<std::size_t>(piece.count) * sizeof(std::uint16_t);
  if (piece.saved != nullptr) base::copy_bytes(piece.saved, piece.to, bytes);
  if (piece.from == nullptr)
    std::memset(piece.to, 0, bytes);
  else
    base::copy_bytes(piece.to, piece.from, bytes);
}

// ---- products ----

// Bit for bit what arithmetic in f64, rounded to f32 once, gives.
void multiply(const float* in, double factor, float* out, std::size_t count) {
  if (is_f32(factor)) {
    const auto narrow = static_cast<float>(factor);
    for (std::size_t i = 0; i < count; ++i) out[i] = times(in[i], narrow);
  } else {
    for (std::size_t i = 0; i < count; ++i) out[i] = times(in[i], factor);
  }
}

bool any_overflows_f16(const float* values, std::size_t count) noexcept {
  unsigned found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= overflows_f16(values[i]) ? 1u : 0u;
  return found != 0;
}

// Elements that are not f32 are converted to it and back, a tile at a time.
void multiply(const Pass& pass, const Piece& piece, double factor) {
  Tile in, out;
  for (std::size_t at = 0; at < piece.count; at += tile) {
    const std::size_t now = std::min(tile, static_cast<std::size_t>(piece.count) - at);
    const std::byte* const from = piece.from + at * size_of(pass.from);
    std::byte* const to = piece.to + at * size_of(pass.to);
    const float* values = in.data();
    if (pass.from == DType::f32)
      values = reinterpret_cast<const float*>(from);
    else
      convert(from, pass.from, in.data(), DType::f32, now);
    if (pass.overflow != nullptr && any_overflows_f16(values, now))
      *pass.overflow = piece.number + 1;
    if (pass.to == DType::f32) {
      multiply(values, factor, reinterpret_cast<float*>(to), now);
      continue;
    }
    if (factor != 1) {
      multiply(values, factor, out.data(), now);
      values = out.data();
    }
    convert(values, DType::f32, to, pass.to, now);
  }
}

void make_products(const Pass& pass, const Piece& piece) {
  const auto count = static_cast<std::size_t>(piece.count);
  const double factor = factor_of(pass);
  if (pass.squares != nullptr && factor == 1) return;  // NaN stays as it is too
  if (piece.from == nullptr) {
    std::memset(piece.to, 0, count * size_of(pass.to));
  } else if (pass.from == DType::f64) {
    const auto* const from = reinterpret_cast<const double*>(piece.from);
    auto* const to = reinterpret_cast<double*>(piece.to);
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i] * factor;
  } else if (size_of(pass.from) < size_of(pass.to) && factor == 1) {
    convert(piece.from, pass.from, piece.to, pass.to, count);
  } else {
    // A short float has too few digits to show the difference between factors of f64 and of f32.
    const bool rounds = size_of(pass.to) < size_of(pass.from);
    multiply(pass, piece, rounds ? static_cast<float>(factor) : factor);
  }
}

// ---- sums ----

template <class Term>
double sum_of(std::size_t count, const Term& term) noexcept {
  double columns[square_columns], lanes[square_lanes];
  for (std::size_t i = 0; i < square_columns; ++i) columns[i] = column_sum(count, i, term);
  for (std::size_t i = 0; i < square_lanes; ++i) lanes[i] = lane_sum(columns, i);
  return lanes_total(lanes);
}

template <class T>
double block_sum(const T* elements, std::size_t count) noexcept {
  return sum_of(count, [elements](std::uint64_t i) {
    const auto value = static_cast<double>(elements[i]);
    return value * value;
  });
}

double block_sum(const std::byte* elements, DType type, std::size_t count) noexcept {
  if (type == DType::f64) return block_sum(reinterpret_cast<const double*>(elements), count);
  if (type == DType::f32) return block_sum(reinterpret_cast<const float*>(elements), count);
  std::array<float, square_block> values;
  convert(elements, type, values.data(), DType::f32, count);
  return block_sum(values.data(), count);
}

void add_up(const Pass& pass, const Piece& piece) {
  const auto count = static_cast<std::size_t>(piece.count);
  auto* sums = reinterpret_cast<double*>(piece.to);
  if (pass.operation == Operation::sum_blocks) {
    const auto* const blocks = reinterpret_cast<const double*>(piece.from);
    *sums = sum_of(blocks == nullptr ? 0 : count, [blocks](std::uint64_t i) { return blocks[i]; });
    return;
  }
  for (std::size_t at = 0; at < count; at += square_block)
    *sums++ = block_sum(piece.from + at * size_of(pass.from), pass.from,
                        std::min(square_block, count - at));
}

}  // namespace

void run_on_host(const Pass& pass, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    // An empty gradient may be at null. The sum of no blocks is a value.
    if (piece.count == 0 && pass.operation != Operation::sum_blocks) continue;
    if (pass.operation == Operation::move)
      move(piece);
    else if (pass.operation == Operation::multiply)
      make_products(pass, piece);
    else
      add_up(pass, piece);
  }
}

}  // namespace rondo::grad

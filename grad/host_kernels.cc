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

using Lanes = double[square_lanes];

void add_lanes(Lanes& to, const double* from) noexcept {
  for (std::size_t lane = 0; lane < square_lanes; ++lane) to[lane] += from[lane];
}

template <class T>
void add_row(Lanes& to, const T* row, std::size_t count) noexcept {
  for (std::size_t lane = 0; lane < count; ++lane)
    to[lane] += static_cast<double>(row[lane]) * static_cast<double>(row[lane]);
}

// g++ would unroll the loop over rows and then use shorter vectors.
template <class T>
void add_group(Lanes& to, const T* group) noexcept {
  Lanes lanes = {};
#pragma GCC unroll 1
  for (std::size_t row = 0; row < square_rows; ++row)
    add_row(lanes, group + row * square_lanes, square_lanes);
  add_lanes(to, lanes);
}

template <class T>
void add_short_group(Lanes& to, const T* group, std::size_t count) noexcept {
  Lanes lanes = {};
  for (std::size_t at = 0; at < count; at += square_lanes)
    add_row(lanes, group + at, std::min(square_lanes, count - at));
  add_lanes(to, lanes);
}

template <class T>
double block_sum(const T* elements, std::size_t count) noexcept {
  Lanes lanes = {};
  std::size_t at = 0;
  for (; count - at >= square_group; at += square_group) add_group(lanes, elements + at);
  if (at < count) add_short_group(lanes, elements + at, count - at);
  return lanes_total(lanes);
}

double block_sum(const void* elements, DType type, std::size_t count) noexcept {
  if (type == DType::f64) return block_sum(static_cast<const double*>(elements), count);
  if (type == DType::f32) return block_sum(static_cast<const float*>(elements), count);
  std::array<float, square_block> values;
  convert(elements, type, values.data(), DType::f32, count);
  return block_sum(values.data(), count);
}

DType type_of(BucketKernel kernel, BucketKernel of_f64) noexcept {
  constexpr DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
  return types[static_cast<std::size_t>(kernel) - static_cast<std::size_t>(of_f64)];
}

void move(const Piece& piece) noexcept {
  const auto bytes = static_cast<std::size_t>(piece.count);
  if (piece.saved != nullptr) base::copy_bytes(piece.saved, piece.to, bytes);
  if (piece.from == nullptr)
    std::memset(piece.to, 0, bytes);
  else
    base::copy_bytes(piece.to, piece.from, bytes);
}

void narrow(const Piece& piece, DType wire, const Pass& pass) {
  const auto count = static_cast<std::size_t>(piece.count);
  if (piece.from == nullptr)
    std::memset(piece.to, 0, count * size_of(wire));
  else if (encode_wire(reinterpret_cast<const float*>(piece.from), pass.factor, piece.to, wire,
                       count))
    pass.words[piece.number] = 1;
}

// In place.
void scale(std::byte* values, DType type, std::size_t count, double factor) {
  if (type == DType::f32) {
    auto* const floats = reinterpret_cast<float*>(values);
    return multiply(floats, factor, floats, count);
  }
  if (type == DType::f64) {
    auto* const doubles = reinterpret_cast<double*>(values);
    for (std::size_t i = 0; i < count; ++i) doubles[i] *= factor;
    return;
  }
  Tile floats;
  for (std::size_t at = 0; at < count; at += tile) {
    const std::size_t now = std::min(tile, count - at);
    std::byte* const to = values + at * size_of(type);
    convert(to, type, floats.data(), DType::f32, now);
    multiply(floats.data(), factor, floats.data(), now);
    convert(floats.data(), DType::f32, to, type, now);
  }
}

void scale(const Piece& piece, DType type, const Pass& pass) {
  const double factor = clip_factor_of_squares(*pass.squares, pass.factor);
  if (factor != 1) scale(piece.to, type, static_cast<std::size_t>(piece.count), factor);
}

void run_on_host(const Pass& pass, const Piece& piece) {
  using enum BucketKernel;
  const auto count = static_cast<std::size_t>(piece.count);
  if (pass.kernel == move) return grad::move(piece);
  if (pass.kernel == to_f16 || pass.kernel == to_bf16)
    return narrow(piece, pass.kernel == to_f16 ? DType::f16 : DType::bf16, pass);
  if (pass.kernel == from_f16 || pass.kernel == from_bf16)
    return decode_wire(piece.from, pass.kernel == from_f16 ? DType::f16 : DType::bf16, pass.factor,
                       reinterpret_cast<float*>(piece.to), count);
  if (pass.kernel >= scale_f64) return scale(piece, type_of(pass.kernel, scale_f64), pass);
  auto* const sums = reinterpret_cast<double*>(piece.to);
  if (pass.kernel == add_blocks)
    *sums =
        piece.from == nullptr ? 0 : total_of({reinterpret_cast<const double*>(piece.from), count});
  else
    sum_squares(piece.from, type_of(pass.kernel, squares_f64), count, sums);
}

}  // namespace

void run_on_host(const Pass& pass, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) run_on_host(pass, piece);
}

bool encode_wire(const float* gradient, double scale, void* wire, DType wire_type,
                 std::size_t count) {
  const auto factor = static_cast<float>(
      scale);  // the wire type has too few digits to show the difference from f64
  bool too_large = false;
  Tile scaled;
  for (std::size_t at = 0; at < count; at += tile) {
    const std::size_t now = std::min(tile, count - at);
    const float* values = gradient + at;
    if (wire_type == DType::f16) too_large |= any_overflows_f16(values, now);
    if (factor != 1) {
      for (std::size_t i = 0; i < now; ++i) scaled[i] = times(values[i], factor);
      values = scaled.data();
    }
    convert(values, DType::f32, static_cast<std::byte*>(wire) + at * size_of(wire_type), wire_type,
            now);
  }
  return too_large;
}

void decode_wire(const void* wire, DType wire_type, double scale, float* gradient,
                 std::size_t count) {
  if (scale == 1) return convert(wire, wire_type, gradient, DType::f32, count);
  Tile values;
  for (std::size_t at = 0; at < count; at += tile) {
    const std::size_t now = std::min(tile, count - at);
    convert(static_cast<const std::byte*>(wire) + at * size_of(wire_type), wire_type, values.data(),
            DType::f32, now);
    multiply(values.data(), scale, gradient + at, now);
  }
}

void sum_squares(const void* elements, DType type, std::size_t count, double* sums) {
  for (std::size_t at = 0; at < count; at += square_block)
    *sums++ = block_sum(static_cast<const std::byte*>(elements) + at * size_of(type), type,
                        std::min(square_block, count - at));
}

double total_of(std::span<const double> blocks) noexcept {
  if (blocks.size() == 1) return blocks.front();
  double columns[square_line] = {};
  for (std::size_t block = 0; block < blocks.size(); ++block)
    columns[block % square_line] += blocks[block];
  Lanes lanes = {};
  for (std::size_t at = 0; at < square_line; at += square_lanes) add_lanes(lanes, columns + at);
  return lanes_total(lanes);
}

}  // namespace rondo::grad

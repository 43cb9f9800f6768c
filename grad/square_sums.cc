// SPDX-License-Identifier: Apache-2.0
#include "grad/square_sums.h"

#include <algorithm>
#include <array>

#include <rondo/convert.h>

namespace rondo::grad {

namespace {

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

}  // namespace

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

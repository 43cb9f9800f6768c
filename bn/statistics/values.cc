// SPDX-License-Identifier: Apache-2.0
#include "bn/statistics/values.h"

#include <rondo/convert.h>
#include <algorithm>
#include <cstddef>
#include <cstring>

namespace rondo::statistics {

namespace {

constexpr std::size_t block = 256;

// Calls function(place, first, count) for each block of the buffer.
template <class Function>
void each_block(const Buffer& buffer, Function function) {
  const std::size_t bytes = size_of(buffer.type);
  for (std::size_t first = 0; first < buffer.count; first += block)
    function(static_cast<char*>(buffer.data) + first * bytes, first,
             std::min(block, buffer.count - first));
}

}  // namespace

bool is_float_of_layer(DType type) noexcept {
  return type == DType::f64 || type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

void read_values(const Buffer& from, std::span<double> to) {
  each_block(from, [&](const char* place, std::size_t first, std::size_t count) {
    if (from.type == DType::f64) {
      std::memcpy(&to[first], place, count * sizeof(double));
      return;
    }
    float values[block];
    convert(place, from.type, values, DType::f32, count);
    std::copy_n(values, count, &to[first]);
  });
}

void write_values(std::span<const double> from, const Buffer& to) {
  each_block(to, [&](char* place, std::size_t first, std::size_t count) {
    if (to.type == DType::f64) {
      std::memcpy(place, &from[first], count * sizeof(double));
      return;
    }
    float values[block];
    std::transform(&from[first], &from[first] + count, values,
                   [](double value) { return static_cast<float>(value); });
    convert(values, DType::f32, place, to.type, count);
  });
}

}  // namespace rondo::statistics

// SPDX-License-Identifier: Apache-2.0
#include "grad/norms.h"

#include <fmt/format.h>

#include <algorithm>

#include <rondo/convert.h>
#include <rondo/error.h>

namespace rondo::grad {

// In locals, so that the compiler may keep all lanes in registers: the elements could alias the
// members.
template <class T>
void SquareSum::add_values(const T* values, std::size_t count) noexcept {
  const auto square = [](T value) {
    return static_cast<double>(value) * static_cast<double>(value);
  };
  std::size_t at = 0;
  for (; at < count && (elements_ + at) % lanes != 0; ++at)
    sums_[(elements_ + at) % lanes] += square(values[at]);
  std::array<double, lanes> sums = sums_;
  for (; count - at >= lanes; at += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += square(values[at + lane]);
  for (std::size_t lane = 0; at < count; ++at, ++lane) sums[lane] += square(values[at]);
  sums_ = sums;
  elements_ += count;
}

void SquareSum::add(const void* piece, DType type, std::size_t first, std::size_t count) {
  if (first == 0) *this = SquareSum();
  if (first != elements_)
    throw Error(Errc::invalid_argument,
                fmt::format("a norm got elements from {} on where {} come next", first, elements_));
  if (type == DType::f64) return add_values(static_cast<const double*>(piece), count);
  if (type == DType::f32) return add_values(static_cast<const float*>(piece), count);
  if (type != DType::f16 && type != DType::bf16)
    throw Error(Errc::invalid_argument,
                fmt::format("there are no norms of {} gradients", name_of(type)));
  std::array<float, 2048> tile;
  for (std::size_t at = 0; at < count; at += tile.size()) {
    const std::size_t now = std::min(tile.size(), count - at);
    convert(static_cast<const std::byte*>(piece) + at * size_of(type), type, tile.data(),
            DType::f32, now);
    add_values(tile.data(), now);
  }
}

double SquareSum::total() const noexcept {
  return ((sums_[0] + sums_[4]) + (sums_[2] + sums_[6])) +
         ((sums_[1] + sums_[5]) + (sums_[3] + sums_[7]));
}

}  // namespace rondo::grad

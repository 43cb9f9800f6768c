// SPDX-License-Identifier: Apache-2.0
#include "grad/norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <rondo/convert.h>
#include <rondo/error.h>

namespace rondo::grad {

// Sums are kept in locals, so that the compiler may keep them in registers: the elements could
// alias the members.
template <class T>
void SquareSum::add_values(const T* values, std::size_t count) noexcept {
  const auto square = [](T value) {
    return static_cast<double>(value) * static_cast<double>(value);
  };
  std::size_t at = 0;
  for (; at < count && (elements_ + at) % partial_sums != 0; ++at)
    sums_[(elements_ + at) % partial_sums] += square(values[at]);
  std::array<double, partial_sums> sums = sums_;
  for (; count - at >= partial_sums; at += partial_sums)
    for (std::size_t i = 0; i < partial_sums; ++i) sums[i] += square(values[at + i]);
  for (std::size_t i = 0; at < count; ++at, ++i) sums[i] += square(values[at]);
  sums_ = sums;
  elements_ += count;
}

void SquareSum::add(const void* piece, DType type, std::size_t first, std::size_t count) {
  if (first == 0) *this = SquareSum();
  if (first != elements_)
    throw Error(
        Errc::invalid_argument,
        fmt::format(
            "norm: this part of the gradient begins at element {}, but element {} comes next",
            first, elements_));
  if (type == DType::f64) return add_values(static_cast<const double*>(piece), count);
  if (type == DType::f32) return add_values(static_cast<const float*>(piece), count);
  if (type != DType::f16 && type != DType::bf16)
    throw Error(Errc::invalid_argument,
                fmt::format("norm: gradients of type {} have no norm; use f64, f32, f16 or bf16",
                            name_of(type)));
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

void GradientNorms::begin_step() {
  std::fill(squares_.begin(), squares_.end(), SquareSum());
  other_squares_ = 0;
}

void GradientNorms::add(std::size_t parameter, const GradientPiece& piece) {
  const GradientPlace& place = setup_.layout.places[parameter];
  const DType type = setup_.layout.arenas[place.arena].type;
  const std::size_t first = (piece.offset - place.offset) / size_of(type);
  if (first == squares_[parameter].elements())
    squares_[parameter].add(setup_.storage.gradients(place.arena) + piece.offset, type, first,
                            piece.bytes / size_of(type));
}

void GradientNorms::add_rest(std::size_t parameter) {
  const Buffer view = setup_.gradient(parameter);
  SquareSum& squares = squares_[parameter];
  const std::size_t first = squares.elements();
  if (first == view.count) return;
  squares.add(static_cast<const std::byte*>(view.data) + first * size_of(view.type), view.type,
              first, view.count - first);
}

void GradientNorms::check_wanted(std::string_view call) const {
  if (!setup_.options.norms) setup_.refuse(fmt::format("{} needs GradientOptions::norms", call));
}

void GradientNorms::count(const Buffer& gradient) {
  check_wanted("count_in_norm()");
  if (gradient.device >= 0)
    setup_.refuse("count_in_norm(): the gradient is in device memory; copy it to the host");
  if (gradient.data == nullptr && gradient.count != 0)
    setup_.refuse("count_in_norm(): the gradient is null");
  SquareSum squares;
  squares.add(gradient.data, gradient.type, 0, gradient.count);
  other_squares_ += squares.total();
}

double GradientNorms::norm(std::size_t parameter) const {
  setup_.check_index("norm", parameter);
  check_wanted("norm()");
  return std::sqrt(squares_[parameter].total());
}

double GradientNorms::norm() const {
  check_wanted("norm()");
  double squares = 0;
  for (const SquareSum& sum : squares_) squares += sum.total();
  return std::sqrt(squares + other_squares_);
}

}  // namespace rondo::grad

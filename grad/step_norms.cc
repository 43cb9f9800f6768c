// SPDX-License-Identifier: Apache-2.0
//
// Norms of the gradients of one step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "grad/state.h"

namespace rondo {

void GradientBuckets::State::forget_norms() {
  std::fill(squares_.begin(), squares_.end(), grad::SquareSum());
  other_squares_ = 0;
}

// Adds a piece that has just arrived, while it is in the cache. Squares are added in the order of
// addresses: a piece that arrives too early waits for add_rest_of_squares().
void GradientBuckets::State::add_squares(std::size_t parameter, const grad::GradientPiece& piece) {
  const grad::GradientPlace& place = layout_.places[parameter];
  const DType type = layout_.arenas[place.arena].type;
  const std::size_t first = (piece.offset - place.offset) / size_of(type);
  if (first == squares_[parameter].elements())
    squares_[parameter].add(storage_.gradients(place.arena) + piece.offset, type, first,
                            piece.bytes / size_of(type));
}

// Called with the last piece of a gradient.
void GradientBuckets::State::add_rest_of_squares(std::size_t parameter) {
  if (untouched(parameter)) return;
  const Buffer view = gradient(parameter);
  grad::SquareSum& squares = squares_[parameter];
  const std::size_t first = squares.elements();
  if (first == view.count) return;
  squares.add(static_cast<const std::byte*>(view.data) + first * size_of(view.type), view.type,
              first, view.count - first);
}

void GradientBuckets::State::check_norms(std::string_view call) const {
  if (!options_.norms) refuse(fmt::format("{} needs GradientOptions::norms", call));
}

void GradientBuckets::State::count_in_norm(const Buffer& gradient) {
  check_usable();
  check_norms("count_in_norm()");
  if (phase_ != Phase::idle)
    refuse(fmt::format("count_in_norm() in step {}: call it after finish(), which resets the norms",
                       step_));
  if (gradient.device >= 0)
    refuse("count_in_norm(): the gradient is in device memory; copy it to the host");
  if (gradient.data == nullptr && gradient.count != 0)
    refuse("count_in_norm(): the gradient is null");
  grad::SquareSum squares;
  squares.add(gradient.data, gradient.type, 0, gradient.count);
  other_squares_ += squares.total();
}

double GradientBuckets::State::norm(std::size_t parameter) const {
  check_index("norm", parameter);
  check_norms("norm()");
  return std::sqrt(squares_[parameter].total());
}

double GradientBuckets::State::norm() const {
  check_norms("norm()");
  double squares = 0;
  for (const grad::SquareSum& sum : squares_) squares += sum.total();
  return std::sqrt(squares + other_squares_);
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Powers of two with which gradients travel as f16, so that neither small ones are lost nor sums
// overflow. Each parameter has one, whatever the buckets. It follows from the sum over ranks of the
// largest element that each gave in the step before, which is in the header; no sum can be larger
// than that. Below 2^7 there is room to grow 2^9 times in a step, and above 2^-14, where f16 begins
// to lose digits, for elements 2^21 times smaller than the largest. Of a parameter that has not
// travelled yet nothing is known: in such a step finish() compares sizes before buckets start,
// once. Where one has grown too much, a sum is infinite on all ranks alike, and its bucket travels
// again.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "grad/state.h"
#include "grad/wire.h"

namespace rondo {

namespace {

constexpr int room = 7;
constexpr int most_exponent = 100;  // its power and the inverse of it are f32
constexpr double largest_f16 = 65504;

int exponent_of(double size) {
  int exponent = 0;
  (void)std::frexp(size, &exponent);
  return std::clamp(room - exponent, -most_exponent, most_exponent);
}

}  // namespace

void GradientBuckets::State::put_sizes() {
  std::copy(largest_.begin(), largest_.end(), header_.begin() + grad::header_elements);
  std::fill(largest_.begin(), largest_.end(), 0.0f);
}

// A parameter that no rank has given keeps its power.
void GradientBuckets::State::take_sizes() {
  measuring_ = false;
  for (std::size_t parameter = 0; parameter < exponents_.size(); ++parameter) {
    const double size = header_[grad::header_elements + parameter];
    if (size > 0 && std::isfinite(size)) exponents_[parameter] = exponent_of(size);
    const grad::GradientPlace& place = layout_.places[parameter];
    if (!exponents_[parameter] && place.bytes != 0 && storage_.has_wire(place.arena) &&
        plan_.active > 0)
      measuring_ = true;
  }
}

void GradientBuckets::State::measure_sizes() {
  for (std::size_t parameter = 0; parameter < exponents_.size(); ++parameter) {
    const grad::GradientPlace& place = layout_.places[parameter];
    if (!storage_.has_wire(place.arena) || contributes_zero(parameter)) continue;
    const Buffer view = gradient(parameter);
    largest_[parameter] = grad::largest_finite(static_cast<const float*>(view.data), view.count) *
                          static_cast<float>(plan_.wire_factor);
  }
  const std::span<double> sizes = std::span(header_).subspan(grad::header_elements);
  std::copy(largest_.begin(), largest_.end(), sizes.begin());
  communicator_
      .all_reduce(buffer_of(sizes), buffer_of(sizes), ReduceOp::sum,
                  operation_options("gradients sizes"))
      .wait();
  take_sizes();
  measuring_ = false;
  // What is all zeros has no size, perhaps for ever (a frozen layer), and later steps must not wait
  // for it. Its first element overflows, unless it is as small as that, and then its bucket travels
  // again.
  for (std::size_t parameter = 0; parameter < exponents_.size(); ++parameter)
    if (!exponents_[parameter] && storage_.has_wire(layout_.places[parameter].arena))
      exponents_[parameter] = most_exponent;
}

float GradientBuckets::State::unit_of(std::size_t bucket, std::size_t parameter) const noexcept {
  if (exponents_.empty()) return 1;
  return std::ldexp(1.0f,
                    buckets_[bucket].again ? again_[parameter] : exponents_[parameter].value_or(0));
}

// The gradients are still this rank's own. The bucket's residuals of earlier rounding are dropped:
// they are less than half a digit of what the gradients were before they grew.
void GradientBuckets::State::send_again_if_too_large(std::size_t bucket) {
  const Buffer wire = storage_.travelling(layout_, bucket);
  if (exponents_.empty() || !grad::has_non_finite_f16(wire.data, wire.count)) return;
  const std::span<double> sizes = std::span(header_).subspan(grad::header_elements);
  std::copy(largest_.begin(), largest_.end(), sizes.begin());
  communicator_
      .all_reduce(buffer_of(sizes), buffer_of(sizes), ReduceOp::sum,
                  operation_options("gradients sizes"))
      .wait();
  const grad::BucketRange& range = layout_.buckets[bucket];
  bool too_large = false;  // else a gradient is infinite or NaN, and so is the sum
  for (const std::size_t parameter : range.parameters) {
    const double size = sizes[parameter];
    again_[parameter] = exponents_[parameter].value_or(0);
    if (!(size > 0 && std::isfinite(size))) continue;
    too_large |= size * static_cast<double>(unit_of(bucket, parameter)) > largest_f16 / 2;
    again_[parameter] = exponent_of(size);
  }
  if (!too_large) return;
  buckets_[bucket].again = true;
  for (const std::size_t parameter : range.parameters) {
    const grad::GradientPiece piece = layout_.piece(bucket, parameter);
    float* const residual = storage_.residual(range.arena, piece.offset);
    if (residual != nullptr && piece.bytes != 0 && !contributes_zero(parameter))
      std::memset(residual, 0, piece.bytes);
  }
  contribute_wire(bucket);
  communicator_.all_reduce(wire, wire, ReduceOp::sum, operation_options("gradients bucket again"))
      .wait();
}

}  // namespace rondo

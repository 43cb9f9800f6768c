// SPDX-License-Identifier: Apache-2.0
#include "grad/powers.h"

#include <algorithm>
#include <cmath>

namespace rondo::grad {

namespace {

constexpr int room = 7;
constexpr int most_exponent = 100;  // its power and the inverse of it are f32
constexpr double largest_f16 = 65504;

int exponent_of(double size) {
  int exponent = 0;
  (void)std::frexp(size, &exponent);
  return std::clamp(room - exponent, -most_exponent, most_exponent);
}

// Zero says nothing about later steps, and a sum that is infinite or NaN gives no power.
bool is_size(double size) {
  return size > 0 && std::isfinite(size);
}

}  // namespace

WirePowers::WirePowers(const Setup& setup)
    : setup_(setup),
      exponents_(setup.options.wire == DType::f16 ? setup.parameters.size() : 0),
      exponents_again_(exponents_.size()) {}

bool WirePowers::has_power(std::size_t parameter) const noexcept {
  const GradientPlace& place = setup_.layout.places[parameter];
  return exponents_[parameter] || place.bytes == 0 || !setup_.storage.has_wire(place.arena);
}

// A parameter that no rank has given keeps its power.
bool WirePowers::take(std::span<const double> sizes, bool any_rank_gives) {
  bool all_known = true;
  for (std::size_t parameter = 0; parameter < exponents_.size(); ++parameter) {
    if (is_size(sizes[parameter])) exponents_[parameter] = exponent_of(sizes[parameter]);
    all_known = all_known && has_power(parameter);
  }
  return all_known || !any_rank_gives;
}

// A gradient of zeros has no size, perhaps for ever (a frozen layer), and later steps must not wait
// for it. It gets the largest power: its first element overflows, unless that is tiny, and then its
// bucket travels again.
void WirePowers::take_measured(std::span<const double> sizes) {
  (void)take(sizes, true);
  for (std::size_t parameter = 0; parameter < exponents_.size(); ++parameter)
    if (!exponents_[parameter] && setup_.storage.has_wire(setup_.layout.places[parameter].arena))
      exponents_[parameter] = most_exponent;
}

bool WirePowers::choose_again(std::size_t bucket, std::span<const double> sizes) {
  bool too_large = false;
  for (const std::size_t parameter : setup_.layout.buckets[bucket].parameters) {
    const double size = sizes[parameter];
    exponents_again_[parameter] = exponents_[parameter].value_or(0);
    if (!is_size(size)) continue;
    too_large |= size * static_cast<double>(power_of(bucket, parameter)) > largest_f16 / 2;
    exponents_again_[parameter] = exponent_of(size);
  }
  if (too_large) again_ = bucket;
  return too_large;
}

float WirePowers::power_of(std::size_t bucket, std::size_t parameter) const noexcept {
  if (exponents_.empty()) return 1;
  return std::ldexp(
      1.0f, again_ == bucket ? exponents_again_[parameter] : exponents_[parameter].value_or(0));
}

}  // namespace rondo::grad

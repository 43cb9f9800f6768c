// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <rondo/convert.h>

#include "catch.h"
#include "grad/host_kernels.h"

namespace rondo::testing {
namespace {

// Counts around the size of a tile.
constexpr std::size_t counts[] = {0, 1, 7, 2047, 2048, 2049, 10'001};

std::vector<float> gradients(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Makes to = from * scale. Returns whether an element is too large for f16.
template <class From, class To>
bool multiply(const std::vector<From>& from, DType from_type, double scale, std::vector<To>& to,
              DType to_type) {
  std::uint32_t overflow = 0;
  const grad::Pass pass{grad::Operation::multiply, from_type, to_type, scale,
                        to_type == DType::f16 ? &overflow : nullptr};
  const grad::Piece piece{reinterpret_cast<const std::byte*>(from.data()),
                          reinterpret_cast<std::byte*>(to.data()), nullptr, from.size(), 6};
  grad::run_on_host(pass, std::span(&piece, 1));
  if (overflow != 0) CHECK(overflow == 7);
  return overflow != 0;
}

std::vector<float> decoded(const std::vector<std::uint16_t>& wire, DType type) {
  std::vector<float> values(wire.size());
  convert(wire.data(), type, values.data(), DType::f32, wire.size());
  return values;
}

TEST_CASE("a gradient is scaled once and rounded once on its way to the wire") {
  const DType type = GENERATE(DType::f16, DType::bf16);
  const double scale = GENERATE(1.0, 0.25, 1.0 / 3);
  for (const std::size_t count : counts) {
    const std::vector<float> gradient = gradients(count, 3);
    std::vector<float> scaled(count);
    for (std::size_t i = 0; i < count; ++i) scaled[i] = gradient[i] * static_cast<float>(scale);
    std::vector<std::uint16_t> wire(count), expected(count);
    convert(scaled.data(), DType::f32, expected.data(), type, count);
    CHECK(!multiply(gradient, DType::f32, scale, wire, type));
    CHECK(wire == expected);
    std::vector<float> back(count), wanted = decoded(wire, type);
    for (float& value : wanted) value = static_cast<float>(static_cast<double>(value) * scale);
    multiply(wire, type, scale, back, DType::f32);
    CHECK(back == wanted);
  }
}

// Before it is multiplied: ranks with such elements alike would have an infinite average.
TEST_CASE("a finite element that f16 cannot hold is found, whatever it is multiplied by") {
  const DType type = GENERATE(DType::f16, DType::bf16);
  const double scale = GENERATE(1.0, 0.25);
  const std::size_t place = GENERATE(0, 2047, 2048, 4999);
  constexpr float most = std::numeric_limits<float>::max(), infinity = HUGE_VALF;
  std::vector<float> gradient = gradients(5000, 5);
  std::vector<std::uint16_t> wire(gradient.size());
  const auto found = [&](float value) {
    gradient[place] = value;
    return multiply(gradient, DType::f32, scale, wire, type);
  };
  for (const float value : {0.0F, 65504.0F, -65519.996F, infinity, -infinity, std::nanf("")})
    CHECK(!found(value));
  for (const float value : {65520.0F, -65520.0F, 1e5F, most, -most})
    CHECK(found(value) == (type == DType::f16));
}

}  // namespace
}  // namespace rondo::testing

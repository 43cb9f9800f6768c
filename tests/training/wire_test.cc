// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <rondo/convert.h>

#include "catch.h"
#include "grad/wire.h"

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
    grad::encode_wire(gradient.data(), nullptr, scale, wire.data(), type, count);
    CHECK(wire == expected);
    std::vector<float> back(count), wanted = decoded(wire, type);
    for (float& value : wanted) value = static_cast<float>(static_cast<double>(value) * scale);
    grad::decode_wire(wire.data(), type, scale, back.data(), count);
    CHECK(back == wanted);
  }
}

TEST_CASE("the residual is what rounding lost, so that sums over steps do not drift") {
  const DType type = GENERATE(DType::f16, DType::bf16);
  for (const std::size_t count : counts) {
    const std::vector<float> gradient = gradients(count, 4);
    std::vector<float> residual(count);
    std::vector<double> sent(count);
    std::vector<std::uint16_t> wire(count);
    constexpr int steps = 100;
    for (int step = 0; step < steps; ++step) {
      grad::encode_wire(gradient.data(), residual.data(), 0.5, wire.data(), type, count);
      const std::vector<float> values = decoded(wire, type);
      for (std::size_t i = 0; i < count; ++i) sent[i] += static_cast<double>(values[i]);
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double wanted = steps * 0.5 * static_cast<double>(gradient[i]);
      if (std::fabs(sent[i] + static_cast<double>(residual[i]) - wanted) >
          1e-5 * std::fabs(wanted) + 1e-6)
        ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("values that are not finite leave no residual behind") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gradient{infinity, -infinity, std::nanf(""), 1e30f, -1e30f, 1.0f};
  std::vector<float> residual(gradient.size(), 0.001f);
  std::vector<std::uint16_t> wire(gradient.size());
  grad::encode_wire(gradient.data(), residual.data(), 1, wire.data(), DType::f16, gradient.size());
  const std::vector<float> values = decoded(wire, DType::f16);
  CHECK(values[0] == infinity);
  CHECK(values[1] == -infinity);
  CHECK(std::isnan(values[2]));
  CHECK(values[3] == infinity);
  CHECK(values[4] == -infinity);
  for (std::size_t i = 0; i < 5; ++i) CHECK(residual[i] == 0.0f);
  CHECK(values[5] + residual[5] == 1.001f);
}

}  // namespace
}  // namespace rondo::testing

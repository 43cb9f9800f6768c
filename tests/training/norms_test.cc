// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <rondo/convert.h>
#include <rondo/error.h>

#include "catch.h"
#include "grad/norms.h"

namespace rondo::testing {
namespace {

std::vector<std::byte> elements_of(DType type, std::size_t count) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random) * 100;
  std::vector<std::byte> elements(count * size_of(type));
  convert(values.data(), DType::f32, elements.data(), type, count);
  return elements;
}

std::vector<double> values_of(const std::vector<std::byte>& elements, DType type,
                              std::size_t count) {
  if (type == DType::f64) {
    std::vector<double> values(count);
    if (count != 0) std::memcpy(values.data(), elements.data(), elements.size());
    return values;
  }
  std::vector<float> values(count);
  convert(elements.data(), type, values.data(), DType::f32, count);
  return {values.begin(), values.end()};
}

// Adds in the order that the header promises.
double in_promised_order(const std::vector<double>& values) {
  double lane[8] = {};
  for (std::size_t i = 0; i < values.size(); ++i) lane[i % 8] += values[i] * values[i];
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

TEST_CASE("a norm has the same bits in whatever pieces its elements come") {
  const DType type = GENERATE(DType::f64, DType::f32, DType::f16, DType::bf16);
  for (const std::size_t count : {0, 1, 7, 8, 9, 2048, 5003}) {
    const std::vector<std::byte> elements = elements_of(type, count);
    const double expected = in_promised_order(values_of(elements, type, count));
    grad::SquareSum whole;
    whole.add(elements.data(), type, 0, count);
    CHECK(whole.total() == expected);
    CHECK(whole.elements() == count);
    std::mt19937 random(static_cast<unsigned>(count));
    for (int round = 0; round < 20; ++round) {
      grad::SquareSum pieces;
      for (std::size_t at = 0; at < count;) {
        const std::size_t now =
            std::min<std::size_t>(count - at, random() % (round < 10 ? 20 : 3000));
        pieces.add(elements.data() + at * size_of(type), type, at, now);
        at += now;
      }
      REQUIRE(pieces.total() == expected);
    }
  }
}

TEST_CASE("a norm begins anew with element 0 and refuses gaps and other types") {
  const std::vector<float> values{3, 4};
  grad::SquareSum sum;
  sum.add(values.data(), DType::f32, 0, 2);
  sum.add(values.data(), DType::f32, 0, 2);
  CHECK(sum.total() == 25);
  CHECK_THROWS_AS(sum.add(values.data(), DType::f32, 1, 1), Error);
  CHECK_THROWS_AS(sum.add(values.data(), DType::f32, 3, 1), Error);
  CHECK_THROWS_AS(sum.add(values.data(), DType::i32, 0, 1), Error);
}

TEST_CASE("a norm does not hide what is not a number") {
  std::vector<float> values(100, 1.0f);
  values[77] = std::nanf("");
  grad::SquareSum sum;
  sum.add(values.data(), DType::f32, 0, values.size());
  CHECK(std::isnan(sum.total()));
}

}  // namespace
}  // namespace rondo::testing

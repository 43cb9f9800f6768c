// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <rondo/convert.h>

#include "catch.h"
#include "grad/device/arithmetic.h"
#include "grad/host_kernels.h"

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

double in_lanes(const std::vector<double>& summands) {
  double lane[8] = {};
  for (std::size_t i = 0; i < summands.size(); ++i) lane[i % 8] += summands[i];
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

// Adds in the order that arithmetic.h promises.
double in_promised_order(const std::vector<double>& values) {
  std::vector<double> columns(256);
  for (std::size_t block = 0; 4096 * block < values.size(); ++block) {
    std::vector<double> lanes(256);
    for (std::size_t i = 4096 * block; i < values.size() && i < 4096 * (block + 1); ++i)
      lanes[i / 128 % 32 * 8 + i % 8] += values[i] * values[i];
    columns[block % 256] += in_lanes(lanes);
  }
  return in_lanes(columns);
}

constexpr DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

TEST_CASE("squares are added in the order that is promised") {
  for (const DType type : types)
    for (const std::size_t count :
         {0, 1, 7, 8, 9, 127, 128, 130, 4095, 4096, 4097, 9000, 1100000}) {
      const std::vector<std::byte> elements = elements_of(type, count);
      const double expected = in_promised_order(values_of(elements, type, count));
      std::vector<double> blocks(grad::square_blocks(count) + 1, -1);
      grad::sum_squares(elements.data(), type, count, blocks.data());
      CHECK(blocks.back() == -1);
      blocks.pop_back();
      CHECK(grad::total_of(blocks) == expected);
    }
}

TEST_CASE("a norm does not hide what is infinite or NaN") {
  std::vector<float> values(5000, 1.0f);
  const auto sum = [&values] {
    std::vector<double> blocks(grad::square_blocks(values.size()));
    grad::sum_squares(values.data(), DType::f32, values.size(), blocks.data());
    return grad::total_of(blocks);
  };
  CHECK(sum() == 5000);
  for (const std::size_t place : {0, 77, 4999}) {
    values[place] = std::nanf("");
    CHECK(std::isnan(sum()));
    values[place] = HUGE_VALF;
    CHECK(std::isinf(sum()));
    values[place] = 1;
  }
}

}  // namespace
}  // namespace rondo::testing

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

// Adds in the order that arithmetic.h promises.
double in_columns(const std::vector<double>& terms) {
  std::vector<double> columns(256);
  for (std::size_t i = 0; i < terms.size(); ++i) columns[i % 256] += terms[i];
  double lane[8] = {};
  for (std::size_t i = 0; i < 256; ++i) lane[i % 8] += columns[i];
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

double in_promised_order(const std::vector<double>& values) {
  std::vector<double> blocks;
  for (std::size_t first = 0; first < values.size(); first += 4096) {
    std::vector<double> squares;
    for (std::size_t i = first; i < values.size() && i < first + 4096; ++i)
      squares.push_back(values[i] * values[i]);
    blocks.push_back(in_columns(squares));
  }
  return in_columns(blocks);
}

// Returns the sum of squares as gradient buckets make it on the processor.
double sum_of(const std::vector<std::byte>& elements, DType type, std::size_t count) {
  const std::size_t blocks = grad::square_blocks(count);
  std::vector<double> sums(blocks + 1, -1);
  double sum = -1;
  auto* const to = reinterpret_cast<std::byte*>(sums.data());
  const grad::Piece squares{elements.data(), to, nullptr, count},
      all{blocks == 0 ? nullptr : to, reinterpret_cast<std::byte*>(&sum), nullptr, blocks};
  grad::run_on_host({grad::Operation::sum_squares, type, DType::f64}, std::span(&squares, 1));
  grad::run_on_host({grad::Operation::sum_blocks, DType::f64, DType::f64}, std::span(&all, 1));
  CHECK(sums.back() == -1);
  return sum;
}

constexpr DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

TEST_CASE("squares are added in the order that is promised") {
  for (const DType type : types)
    for (const std::size_t count :
         {0, 1, 7, 8, 9, 127, 128, 130, 4095, 4096, 4097, 9000, 1100000}) {
      const std::vector<std::byte> elements = elements_of(type, count);
      CHECK(sum_of(elements, type, count) == in_promised_order(values_of(elements, type, count)));
    }
}

TEST_CASE("a norm does not hide what is infinite or NaN") {
  std::vector<float> values(5000, 1.0f);
  const auto sum = [&values] {
    const auto bytes = std::as_bytes(std::span(values));
    return sum_of({bytes.begin(), bytes.end()}, DType::f32, values.size());
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

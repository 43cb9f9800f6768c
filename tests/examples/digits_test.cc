// SPDX-License-Identifier: Apache-2.0
#include "examples/train/digits.h"

#include <array>
#include <string>

#include "catch.h"
#include "examples/train/crc32.h"

namespace train {
namespace {

std::string drawn(const Digits& digits, std::size_t index) {
  std::array<std::uint8_t, image_pixels> pixels;
  const int label = digits.draw(index, pixels);
  return std::string(pixels.begin(), pixels.end()) + static_cast<char>(label);
}

TEST_CASE("pictures are the same on every machine") {
  const Digits digits(Digits::Set::training, 200, 1);
  std::string all;
  std::array<int, class_count> labels{};
  for (std::size_t i = 0; i < digits.count(); ++i) {
    all += drawn(digits, i);
    ++labels.at(static_cast<std::size_t>(all.back()));
  }
  CHECK(crc32(all) == 0x6b64c47b);  // recorded when the pictures were first drawn
  for (const int count : labels) CHECK(count > 5);
}

TEST_CASE("pictures depend on seed, set and index") {
  const Digits digits(Digits::Set::training, 10, 1);
  CHECK(drawn(digits, 3) == drawn(Digits(Digits::Set::training, 99, 1), 3));
  CHECK(drawn(digits, 3) != drawn(digits, 4));
  CHECK(drawn(digits, 3) != drawn(Digits(Digits::Set::test, 10, 1), 3));
  CHECK(drawn(digits, 3) != drawn(Digits(Digits::Set::training, 10, 2), 3));
}

TEST_CASE("crc32 is that of zip") {
  CHECK(crc32("123456789") == 0xcbf43926);
}

}  // namespace
}  // namespace train

// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <random>
#include <string_view>
#include <vector>

#include "catch.h"

using namespace rondo;

namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> result;
  for (const int value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

std::uint32_t bit_by_bit(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0u;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

}  // namespace

TEST_CASE("crc32c: the vectors of RFC 3720 B.4", "[crc32c]") {
  std::vector<std::byte> rising(32), falling(32);
  for (std::size_t i = 0; i < 32; ++i) {
    rising[i] = static_cast<std::byte>(i);
    falling[i] = static_cast<std::byte>(31 - i);
  }
  const auto read_10 = bytes_of({0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                 0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                 0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0});
  for (const auto crc : {&base::crc32c, &base::crc32c_by_table}) {
    CHECK(crc(std::vector<std::byte>(32), 0) == 0x8a9136aau);
    CHECK(crc(std::vector<std::byte>(32, std::byte{0xff}), 0) == 0x62a8ab43u);
    CHECK(crc(rising, 0) == 0x46dd794eu);
    CHECK(crc(falling, 0) == 0x113fdb5cu);
    CHECK(crc(read_10, 0) == 0xd9963a56u);
    CHECK(crc(std::as_bytes(std::span(std::string_view("123456789"))), 0) == 0xe3069283u);
    CHECK(crc({}, 0) == 0);
    CHECK(crc({}, 0x12345678u) == 0x12345678u);
  }
}

TEST_CASE("crc32c: every length and offset, in one piece and in two", "[crc32c]") {
  std::mt19937 random(7);
  std::vector<std::byte> data(20000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  const std::span<const std::byte> all(data);
  for (std::size_t count :
       {0,  1,  2,  3,    4,    5,    7,    8,    9,    15,   16,   17,   31,
        63, 64, 65, 1023, 1024, 3071, 3072, 3073, 6143, 6144, 6145, 9999, 19990}) {
    for (const std::size_t offset : {0, 1, 3, 7}) {
      const auto piece = all.subspan(offset, count);
      const std::uint32_t expected = bit_by_bit(piece);
      INFO(count << " bytes from " << offset);
      REQUIRE(base::crc32c(piece) == expected);
      REQUIRE(base::crc32c_by_table(piece) == expected);
      for (const std::size_t cut : {count / 3, count - count / 4})
        REQUIRE(base::crc32c(piece.subspan(cut), base::crc32c(piece.first(cut))) == expected);
    }
  }
}

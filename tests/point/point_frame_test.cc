// SPDX-License-Identifier: Apache-2.0
#include "catch.h"
#include "collectives/point/frame.h"

namespace rondo {

TEST_CASE("a header between two ranks survives, and any wrong bit shows") {
  point::PointFrame frame;
  frame.kind = GENERATE(point::PointKind::message, point::PointKind::announce,
                        point::PointKind::grant, point::PointKind::piece, point::PointKind::credit);
  frame.type = DType::u8;
  frame.key = {0xdeadbeefu, 1};
  frame.call = 77;
  frame.checksum = 0x12345678u;
  frame.message = 1ull << 40;
  frame.count = 1ull << 41;
  frame.returned = ~0ull;
  if (frame.kind == point::PointKind::message)
    frame.content.fill(std::byte{0x5a});
  else
    frame.offset = 1ull << 33;
  const transports::HeaderBytes bytes = point::encode(frame);
  point::PointFrame again;
  REQUIRE(point::decode(bytes, again));
  CHECK(again.kind == frame.kind);
  CHECK(again.type == frame.type);
  CHECK(again.key == frame.key);
  CHECK(again.call == frame.call);
  CHECK(again.checksum == frame.checksum);
  CHECK(again.message == frame.message);
  CHECK(again.count == frame.count);
  CHECK(again.returned == frame.returned);
  CHECK(again.offset == frame.offset);
  CHECK(again.content == frame.content);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    transports::HeaderBytes wrong = bytes;
    wrong[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    CHECK_FALSE(point::decode(wrong, again));
  }
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Tests that the headers of frames that no correct peer sends are refused, with their cause.
#include "catch.h"
#include "point/played_peers.h"

namespace rondo::testing {
namespace {

using Catch::Contains;
using point::PointKind;

struct Forged {
  PointKind kind;
  std::uint64_t message, bytes, returned;
  const char* cause;
};

point::PointFrame frame_of(const Forged& forged) {
  point::PointFrame frame;
  frame.kind = forged.kind;
  frame.key = {7, 0};
  frame.message = forged.message;
  frame.count = forged.bytes;
  frame.returned = forged.returned;
  return frame;
}

void check_refused(PlayedPeers& bench, const Forged& forged) {
  bench.may_fail = true;
  CHECK(bench.point.arrived(bench.link(1, transports::Lane::messages),
                            point::encode(frame_of(forged))) == transports::Header::refuse);
  REQUIRE(bench.failure);
  CHECK(bench.failure->code == Errc::corrupt);
  CHECK_THAT(bench.failure->cause, Contains(forged.cause));
}

}  // namespace

TEST_CASE("frames that a peer cannot have sent are refused with their cause") {
  constexpr std::uint64_t eager = transports::eager_bytes;
  const Forged forged =
      GENERATE(Forged{PointKind::credit, 0, 0, 1, "gives back credit that it does not have"},
               Forged{PointKind::message, 2, 8, 0, "out of order"},
               Forged{PointKind::message, 1, eager + 1, 0, "too long"},
               Forged{PointKind::announce, 2, 8, 0, "out of order"},
               Forged{PointKind::grant, 1, 0, 0, "was not announced"},
               Forged{PointKind::piece, 1, 8, 0, "was not asked for"});
  PlayedPeers bench;
  check_refused(bench, forged);
}

TEST_CASE("the message that a peer has no credit for is refused") {
  constexpr std::uint64_t bytes = transports::eager_bytes,
                          most = point::point_credit / (bytes + point::message_cost);
  PlayedPeers bench;
  for (std::uint64_t message = 1; message <= most; ++message) {
    bench.arrive(1, PointKind::message, message, bytes);
    bench.complete(1);
  }
  check_refused(bench, {PointKind::message, most + 1, bytes, 0, "more than it has credit for"});
}

}  // namespace rondo::testing

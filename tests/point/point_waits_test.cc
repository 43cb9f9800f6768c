// SPDX-License-Identifier: Apache-2.0
//
// Checks what a transfer waits for, and when it counts as moving. The test plays the link and the
// peer, frame by frame.
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "catch.h"
#include "point/played_peers.h"

namespace rondo::testing {
namespace {

const std::string late = "not done within 2 s on rank 0: ";

}  // namespace

TEST_CASE("a receive whose message is just arriving waits for its sender") {
  PlayedPeers bench;
  Payload memory(40'000);
  operation::Taken<point::MessageOperation> receive;
  SECTION("the receive came first") {
    receive = bench.receive(memory);
    CHECK(bench.awaited(*receive) == std::vector<int>{1});
    bench.arrive(1, point::PointKind::message, 1, memory.size());
  }
  SECTION("the header came first") {
    bench.arrive(1, point::PointKind::message, 1, memory.size());
    receive = bench.receive(memory);
  }
  CHECK(bench.point.late_text(*receive) ==
        late + "rank 1 has sent the header of send with tag 7, and not yet all of its 39.06 KiB");
  CHECK(bench.awaited(*receive) == std::vector<int>{1});
  bench.complete(1);
  CHECK(PlayedPeers::done(*receive));
}

TEST_CASE("a message that arrives in pieces is named once, with what has come") {
  PlayedPeers bench;
  Payload memory(point::point_piece_bytes + 1024);
  const auto receive = bench.receive(memory);
  bench.arrive(1, point::PointKind::announce, 1, memory.size());
  bench.complete(1);
  bench.point.advance();
  bench.arrive(1, point::PointKind::piece, 1, memory.size());
  bench.complete(1);
  bench.arrive(1, point::PointKind::piece, 1, memory.size(), point::point_piece_bytes);
  CHECK(bench.point.late_text(*receive) ==
        late + "rank 1 has sent 512 KiB of 513 KiB of send with tag 7");
  CHECK(bench.awaited(*receive) == std::vector<int>{1});
  bench.complete(1);
  CHECK(PlayedPeers::done(*receive));
}

TEST_CASE("a send goes at once if nothing waits before it and there is credit") {
  using transports::Send;
  PlayedPeers bench;
  PlayedLink& link = bench.links[1];
  Payload small(8), large(transports::eager_bytes), larger(transports::eager_bytes + 1);
  CHECK(bench.send_at_once(small) == Send::full);  // the link was never used
  const auto first = bench.send(small);
  bench.point.advance();
  REQUIRE(PlayedPeers::done(*first));
  CHECK(bench.send_at_once(small) == Send::done);
  CHECK(link.last.message == 2);
  CHECK(bench.send_at_once(larger) == Send::full);
  link.answer = Send::full;
  CHECK(bench.send_at_once(small) == Send::full);
  const auto waits = bench.send(small);
  bench.point.advance();
  link.answer = Send::done;
  CHECK(bench.send_at_once(small) == Send::full);
  CHECK(link.frames == 2);
  bench.point.advance();
  CHECK(PlayedPeers::done(*waits));
  int sent = 0;
  while (bench.send_at_once(large) == Send::done) ++sent;
  CHECK(sent == point::point_credit / (transports::eager_bytes + point::message_cost));
}

TEST_CASE("a send that the link has copied at once ends when the link has sent it") {
  PlayedPeers bench;
  Payload memory(40'000);
  const auto first = bench.send(memory);
  bench.point.advance();
  bench.links[1].answer = transports::Send::copied;
  REQUIRE(bench.send_at_once(memory) == transports::Send::copied);
  const auto send = bench.await_sent(memory);
  CHECK_FALSE(PlayedPeers::done(*send));
  CHECK(send->times.sent != base::TimePoint{});
  CHECK(bench.awaited(*send) == std::vector<int>{1});
  bench.point.sent(bench.links[1]);
  CHECK(PlayedPeers::done(*send));
}

TEST_CASE("a send that the link has taken waits for the peer to read it") {
  PlayedPeers bench;
  bench.links[1].answer = transports::Send::copied;
  Payload memory(40'000);
  const auto send = bench.send(memory);
  CHECK(bench.point.advance());
  CHECK(bench.point.late_text(*send) ==
        late + "rank 1 has not read all that rank 0 has sent for receive with tag 7");
  CHECK(bench.awaited(*send) == std::vector<int>{1});
  bench.point.sent(bench.links[1]);
  CHECK(PlayedPeers::done(*send));
}

TEST_CASE("the oldest call of the lane moves with each of its frames") {
  PlayedPeers bench;
  Payload large(2 * point::point_piece_bytes), small(100);
  const auto receive = bench.receive(large);
  bench.arrive(1, point::PointKind::announce, 1, large.size());
  bench.complete(1);
  bench.point.advance();
  bench.calls.stands_still();
  CHECK(bench.calls.stands_still());
  bench.arrive(1, point::PointKind::piece, 1, large.size());
  CHECK(bench.calls.stands_still());
  bench.complete(1);
  CHECK_FALSE(bench.calls.stands_still());
  // Another call sends, and ends. The oldest one has nothing of that.
  const auto other = bench.send(small, 8);
  bench.point.advance();
  REQUIRE(PlayedPeers::done(*other));
  CHECK(bench.calls.stands_still());
  bench.arrive(1, point::PointKind::piece, 1, large.size(), point::point_piece_bytes);
  bench.complete(1);
  REQUIRE(PlayedPeers::done(*receive));
  CHECK_FALSE(bench.calls.stands_still());
}

TEST_CASE("a send moves when the link takes a frame, and when it has sent the last one") {
  PlayedPeers bench;
  Payload large(2 * point::point_piece_bytes);
  bench.links[1].answer = transports::Send::full;
  const auto send = bench.send(large);
  bench.point.advance();
  CHECK(bench.calls.stands_still());
  bench.links[1].answer = transports::Send::queued;
  bench.point.advance();
  CHECK_FALSE(bench.calls.stands_still());
  bench.arrive(1, point::PointKind::grant, 1);
  bench.complete(1);
  CHECK(bench.calls.stands_still());
  bench.point.advance();
  CHECK_FALSE(bench.calls.stands_still());
  REQUIRE(bench.links[1].frames == 3);
  for (int frame = 0; frame < bench.links[1].frames; ++frame) {
    CHECK_FALSE(PlayedPeers::done(*send));
    bench.point.sent(bench.links[1]);
  }
  REQUIRE(PlayedPeers::done(*send));
  CHECK_FALSE(bench.calls.stands_still());
}

// A second look at the memory would show the bytes that the test has written meanwhile.
TEST_CASE("the checksum of a payload is computed once, however often the link has no room") {
  PlayedPeers bench(2, true);
  bench.links[1].answer = transports::Send::full;
  Payload first(1000, std::byte{1}), second(1000, std::byte{2});
  const std::uint32_t of_first = base::crc32c(first), of_second = base::crc32c(second);
  const auto send = bench.send(first);
  bench.point.advance();
  CHECK(bench.links[1].last.checksum == of_first);
  first[0] = std::byte{9};
  bench.point.advance();
  CHECK(bench.links[1].last.checksum == of_first);
  bench.links[1].answer = transports::Send::done;
  bench.point.advance();
  CHECK(bench.links[1].last.checksum == of_first);
  REQUIRE(PlayedPeers::done(*send));
  const auto next = bench.send(second);
  bench.point.advance();
  CHECK(bench.links[1].last.checksum == of_second);
  REQUIRE(PlayedPeers::done(*next));
}

// Every piece has a checksum of its own.
TEST_CASE("each piece of a message has the checksum of its bytes") {
  PlayedPeers bench(2, true);
  Payload large(2 * point::point_piece_bytes, std::byte{1});
  large.back() = std::byte{2};
  const std::span<const std::byte> bytes(large);
  const auto send = bench.send(large);
  bench.point.advance();
  bench.arrive(1, point::PointKind::grant, 1);
  bench.complete(1);
  bench.links[1].answer = transports::Send::full;
  bench.point.advance();
  CHECK(bench.links[1].last.checksum == base::crc32c(bytes.first(point::point_piece_bytes)));
  bench.links[1].answer = transports::Send::done;
  bench.point.advance();
  REQUIRE(PlayedPeers::done(*send));
  CHECK(bench.links[1].last.checksum == base::crc32c(bytes.subspan(point::point_piece_bytes)));
}

}  // namespace rondo::testing

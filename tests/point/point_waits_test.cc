// SPDX-License-Identifier: Apache-2.0
//
// What a transfer waits for, and when it counts as moving. The test plays the link and the peer,
// frame by frame.
#include <memory>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "catch.h"
#include "collectives/engine/engine.h"
#include "collectives/point/point.h"

namespace rondo::testing {
namespace {

using Payload = std::vector<std::byte>;

class PlayedLink final : public transports::Link {
 public:
  transports::Send answer = transports::Send::done;
  int frames = 0;
  point::PointFrame last;  // what the last call of send() was given

  int peer() const noexcept override { return 1; }
  transports::Lane lane() const noexcept override { return transports::Lane::messages; }
  transports::Send send(const transports::HeaderBytes& header, std::span<const std::byte>,
                        std::uint64_t) override {
    last = point::decode_point(header).value();
    frames += answer == transports::Send::full ? 0 : 1;
    return answer;
  }
  std::string describe() const override { return "the played rank"; }
};

// Rank 0 of 2. Rank 1 is played.
struct Bench final : engine::OwnerHost {
  explicit Bench(bool checksum = false) : point({0, 2, checksum}, calls, *this) {}
  ~Bench() override { pool->close(); }

  transports::Link& link(int, transports::Lane) override { return out; }
  void finished(engine::Operation& operation) override {
    calls.remove(operation);
    operation.succeed();
  }
  void suspect(engine::Failure failure) override { FAIL(failure.cause); }

  engine::Taken<point::MessageOperation> start(bool sending, Payload& memory,
                                               std::uint32_t tag = 7) {
    const point::PointTransfer transfer{sending,      1, {tag, 0}, DType::u8, memory.size(),
                                        memory.data()};
    const point::PointCall call{{&transfer, 1}, {}, std::chrono::seconds{2}, ""};
    engine::Taken<point::MessageOperation> operation(new point::MessageOperation(engine, pool));
    operation->start(call, calls.take_number());
    calls.append(*operation);
    point.reserve(call.transfers);
    point.begin(*operation, call.transfers);
    return operation;
  }
  // The header of a frame from rank 1. complete() follows when its payload is there. message: its
  // number; that of the other direction in a grant.
  void arrive(point::PointKind kind, std::uint64_t message, std::size_t bytes = 0,
              std::uint64_t offset = 0) {
    point::PointFrame frame;
    frame.kind = kind;
    frame.key = {7, 0};
    frame.message = message;
    frame.count = bytes;
    frame.offset = offset;
    REQUIRE(point.arrived(out, point::encode(frame)) == transports::Header::accept);
  }
  void complete() { point.received(out); }
  std::vector<int> awaited(const engine::Operation& operation) const {
    std::vector<int> ranks;
    point.append_awaited(operation, ranks);
    return ranks;
  }
  static bool done(const engine::Operation& operation) {
    return operation.state() == engine::Operation::State::done;
  }

  engine::Engine engine{{}, {nullptr}, {}, nullptr};  // only what operations refer to
  std::shared_ptr<engine::OperationPool> pool = std::make_shared<engine::OperationPool>();
  engine::LaneCalls calls{0, transports::Lane::messages};
  PlayedLink out;
  point::Point point;
};

const std::string late = "not done within 2 s on rank 0: ";

}  // namespace

TEST_CASE("a receive whose message is just arriving waits for its sender") {
  Bench bench;
  Payload memory(40'000);
  engine::Taken<point::MessageOperation> receive;
  SECTION("the receive came first") {
    receive = bench.start(false, memory);
    CHECK(bench.awaited(*receive) == std::vector<int>{1});
    bench.arrive(point::PointKind::message, 1, memory.size());
  }
  SECTION("the header came first") {
    bench.arrive(point::PointKind::message, 1, memory.size());
    receive = bench.start(false, memory);
  }
  CHECK(bench.point.late_text(*receive) ==
        late + "rank 1 has sent the header of send with tag 7, and not yet all of its 39.06 KiB");
  CHECK(bench.awaited(*receive) == std::vector<int>{1});
  bench.complete();
  CHECK(Bench::done(*receive));
}

TEST_CASE("a message that arrives in pieces is named once, with what has come") {
  Bench bench;
  Payload memory(point::point_piece_bytes + 1024);
  const auto receive = bench.start(false, memory);
  bench.arrive(point::PointKind::announce, 1, memory.size());
  bench.complete();
  bench.point.advance();
  bench.arrive(point::PointKind::piece, 1, memory.size());
  bench.complete();
  bench.arrive(point::PointKind::piece, 1, memory.size(), point::point_piece_bytes);
  CHECK(bench.point.late_text(*receive) ==
        late + "rank 1 has sent 512 KiB of 513 KiB of send with tag 7");
  CHECK(bench.awaited(*receive) == std::vector<int>{1});
  bench.complete();
  CHECK(Bench::done(*receive));
}

TEST_CASE("a send that the link has taken waits for the peer to read it") {
  Bench bench;
  bench.out.answer = transports::Send::copied;
  Payload memory(40'000);
  const auto send = bench.start(true, memory);
  CHECK(bench.point.advance());
  CHECK(bench.point.late_text(*send) ==
        late + "rank 1 has not read all that rank 0 has sent for receive with tag 7");
  CHECK(bench.awaited(*send) == std::vector<int>{1});
  bench.point.sent(bench.out);
  CHECK(Bench::done(*send));
}

TEST_CASE("the oldest call of the lane moves with each of its frames") {
  Bench bench;
  Payload large(2 * point::point_piece_bytes), small(100);
  const auto receive = bench.start(false, large);
  bench.arrive(point::PointKind::announce, 1, large.size());
  bench.complete();
  bench.point.advance();
  bench.calls.stands_still();
  CHECK(bench.calls.stands_still());
  bench.arrive(point::PointKind::piece, 1, large.size());
  CHECK(bench.calls.stands_still());
  bench.complete();
  CHECK_FALSE(bench.calls.stands_still());
  // Another call sends, and ends. The oldest one has nothing of that.
  const auto other = bench.start(true, small, 8);
  bench.point.advance();
  REQUIRE(Bench::done(*other));
  CHECK(bench.calls.stands_still());
  bench.arrive(point::PointKind::piece, 1, large.size(), point::point_piece_bytes);
  bench.complete();
  REQUIRE(Bench::done(*receive));
  CHECK_FALSE(bench.calls.stands_still());
}

TEST_CASE("a send moves when the link takes a frame, and when it has sent the last one") {
  Bench bench;
  Payload large(2 * point::point_piece_bytes);
  bench.out.answer = transports::Send::full;
  const auto send = bench.start(true, large);
  bench.point.advance();
  CHECK(bench.calls.stands_still());
  bench.out.answer = transports::Send::queued;
  bench.point.advance();
  CHECK_FALSE(bench.calls.stands_still());
  bench.arrive(point::PointKind::grant, 1);
  bench.complete();
  CHECK(bench.calls.stands_still());
  bench.point.advance();
  CHECK_FALSE(bench.calls.stands_still());
  REQUIRE(bench.out.frames == 3);
  for (int frame = 0; frame < bench.out.frames; ++frame) {
    CHECK_FALSE(Bench::done(*send));
    bench.point.sent(bench.out);
  }
  REQUIRE(Bench::done(*send));
  CHECK_FALSE(bench.calls.stands_still());
}

// A second look at the memory would show the bytes that the test has written meanwhile.
TEST_CASE("the checksum of a payload is computed once, however often the link has no room") {
  Bench bench(true);
  bench.out.answer = transports::Send::full;
  Payload first(1000, std::byte{1}), second(1000, std::byte{2});
  const std::uint32_t of_first = base::crc32c(first), of_second = base::crc32c(second);
  const auto send = bench.start(true, first);
  bench.point.advance();
  CHECK(bench.out.last.checksum == of_first);
  first[0] = std::byte{9};
  bench.point.advance();
  CHECK(bench.out.last.checksum == of_first);
  bench.out.answer = transports::Send::done;
  bench.point.advance();
  CHECK(bench.out.last.checksum == of_first);
  REQUIRE(Bench::done(*send));
  const auto next = bench.start(true, second);
  bench.point.advance();
  CHECK(bench.out.last.checksum == of_second);
  REQUIRE(Bench::done(*next));
}

// Every piece has a checksum of its own.
TEST_CASE("each piece of a message has the checksum of its bytes") {
  Bench bench(true);
  Payload large(2 * point::point_piece_bytes, std::byte{1});
  large.back() = std::byte{2};
  const std::span<const std::byte> bytes(large);
  const auto send = bench.start(true, large);
  bench.point.advance();
  bench.arrive(point::PointKind::grant, 1);
  bench.complete();
  bench.out.answer = transports::Send::full;
  bench.point.advance();
  CHECK(bench.out.last.checksum == base::crc32c(bytes.first(point::point_piece_bytes)));
  bench.out.answer = transports::Send::done;
  bench.point.advance();
  REQUIRE(Bench::done(*send));
  CHECK(bench.out.last.checksum == base::crc32c(bytes.subspan(point::point_piece_bytes)));
}

}  // namespace rondo::testing

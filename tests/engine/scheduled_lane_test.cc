// SPDX-License-Identifier: Apache-2.0
//
// Checks what a lane gives to its links. The test plays the link and the peer.
#include "collectives/lanes/scheduled_lane.h"

#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "catch.h"
#include "cluster.h"
#include "collectives/engine/engine.h"
#include "support/idle_link.h"

using namespace rondo;

namespace {

class PlayedLink final : public testing::IdleLink {
 public:
  transports::Send answer = transports::Send::full;
  operation::Frame last;  // what the last call of send() was given

  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte>) override {
    last = operation::decode(header).value();
    return answer;
  }
};

// Rank 0 of 2, which sends its block of an all_gather in two segments. Rank 1 is played.
struct Sender final : operation::OwnerHost {
  void enqueued() override {}
  Sender() {
    const schedules::Call call =
        make_call(Collective::all_gather, schedules::Algorithm::ring, in, out, in.size());
    operation->run.begin(program, call, 0, 2, room);
    operation->start(call, calls.take_number());
    lane.begin(*operation);
  }
  ~Sender() override {
    CHECK(suspicion.cause == expected_suspicion);
    lane.clear();
    pool->close();
  }

  transports::Link& link(int, transports::Lane) override { return rank_1; }
  void finished(operation::Operation&) override {}
  void suspect(operation::Failure failure) override { suspicion = std::move(failure); }

  // Frames are sent from the output, which has a copy of the block.
  static constexpr std::size_t segment = 64;  // elements, as make_call() cuts them
  std::uint32_t checksum_of(std::size_t number) const {
    return base::crc32c(std::as_bytes(std::span(out).subspan(number * segment, segment)));
  }

  std::vector<float> in = std::vector<float>(2 * segment, 1), out = std::vector<float>(4 * segment);
  schedules::Program program{Collective::all_gather, schedules::Algorithm::ring, 0, 0, 2, 2};
  operation::Run::Room room;
  engine::Engine engine{{}, {nullptr}, {}, nullptr};  // only what operations refer to
  std::shared_ptr<operation::OperationPool> pool = std::make_shared<operation::OperationPool>();
  operation::Taken<operation::ScheduledOperation> operation{
      new operation::ScheduledOperation(engine, pool)};
  operation::LaneCalls calls{0, transports::Lane::bulk};
  PlayedLink rank_1;
  operation::Failure suspicion;
  std::string expected_suspicion;
  lanes::ScheduledLane lane{{0, 2, true}, calls, *this};
};

}  // namespace

// A second look at the memory would show the values that the test has written meanwhile.
TEST_CASE("the checksum of a frame is computed once, however often the link has no room") {
  Sender sender;
  sender.out[Sender::segment] = 2;
  const std::uint32_t first = sender.checksum_of(0), second = sender.checksum_of(1);
  CHECK_FALSE(sender.lane.advance());
  CHECK(sender.rank_1.last.segment == 0);
  CHECK(sender.rank_1.last.checksum == first);
  sender.out[0] = 9;
  CHECK_FALSE(sender.lane.advance());
  CHECK(sender.rank_1.last.checksum == first);
  sender.rank_1.answer = transports::Send::done;
  CHECK(sender.lane.advance());
  CHECK(sender.rank_1.last.segment == 1);
  CHECK(sender.rank_1.last.checksum == second);
}

// A link may show the header again while there is no room for its payload.
TEST_CASE("the first header of a peer tells that it has called, however often it is shown") {
  Sender sender;
  const operation::Operation& operation = *sender.operation;
  const operation::Standing before = sender.lane.standing(operation, true);
  CHECK(before.cause == WaitCause::ranks);
  CHECK(before.only == 1);
  CHECK(before.warns);
  CHECK(sender.lane.standing(operation, false).only == -1);
  const transports::HeaderBytes header =
      operation::encode({sender.operation->signature, operation.number, 0, 0});
  for (int shown = 0; shown < 3; ++shown) {
    CHECK(sender.lane.arrived(sender.rank_1, header) == transports::Header::accept);
    CHECK(sender.lane.standing(operation, true).cause == WaitCause::transfer);
  }
}

TEST_CASE("a frame of another segment or place is refused") {
  const std::uint16_t segment = GENERATE(0, 1), frame = GENERATE(0, 1);
  Sender sender;
  const transports::HeaderBytes header =
      operation::encode({sender.operation->signature, sender.operation->number, segment, frame});
  const bool next = segment == 0 && frame == 0;
  CHECK(sender.lane.arrived(sender.rank_1, header) ==
        (next ? transports::Header::accept : transports::Header::refuse));
  if (next) return;
  CHECK(sender.suspicion.code == Errc::corrupt);
  sender.expected_suspicion = sender.suspicion.cause;
  CHECK_THAT(sender.suspicion.cause,
             Catch::Contains("frame " + std::to_string(frame) + " of segment " +
                             std::to_string(segment) + " came out of order"));
}

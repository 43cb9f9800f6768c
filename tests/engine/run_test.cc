// SPDX-License-Identifier: Apache-2.0
//
// Runs one operation on one rank by hand, and checks which frames it is ready for, now and some
// places later.
#include "collectives/operation/run.h"

#include <vector>

#include "catch.h"
#include "cluster.h"

using namespace rondo;

namespace {

// Rank 0 of some ranks, with what the engine would know.
struct OneRank {
  OneRank(Collective operation, schedules::Algorithm algorithm, int size, std::size_t count,
          std::uint32_t depth, bool in_place)
      : in(count * static_cast<std::size_t>(size), 1),
        out(in.size(), -1),
        program(operation, algorithm, 0, 0, size, depth) {
    schedules::Call call = make_call(operation, algorithm, in_place ? out : in, out, count);
    call.depth = depth;
    run.begin(program, call, 0, size, room);
  }

  int peer(int rank) const { return program.peer_index(rank); }
  // Does what a transport does with the next frame from the rank.
  void take(int rank) {
    const auto receive = run.receivable(peer(rank));
    REQUIRE(receive);
    if (receive->destination == nullptr) {
      const std::vector<float> payload(receive->bytes / sizeof(float), 1);
      REQUIRE(run.consume(peer(rank), std::as_bytes(std::span(payload)), 1) == receive->bytes);
    }
    run.received(peer(rank));
  }
  operation::FramePlace start(int rank) {
    REQUIRE(run.sendable(peer(rank)));
    return run.send_started(peer(rank));
  }
  void finish(const operation::FramePlace& place) {
    run.payload_released(place);
    run.send_finished(place);
  }
  // The offset in `out`, in bytes, where the frame will lie; -1 when it is borrowed; nothing when
  // it must wait.
  std::optional<std::ptrdiff_t> where(int rank, std::size_t ahead) const {
    const auto receive = run.receivable(peer(rank), ahead);
    if (!receive) return std::nullopt;
    if (receive->destination == nullptr) return -1;
    return receive->destination - reinterpret_cast<const std::byte*>(out.data());
  }

  std::vector<float> in, out;
  schedules::Program program;
  operation::Run::Room room;
  operation::Run run;
};

constexpr std::optional<std::ptrdiff_t> must_wait = std::nullopt;
constexpr std::optional<std::ptrdiff_t> borrowed = -1;

}  // namespace

TEST_CASE("frames ahead are foreseen as far as the window goes") {
  // Segments of 64 floats; the block of rank 1 lies behind that of rank 0.
  constexpr std::ptrdiff_t segment = 64 * sizeof(float), block = 5 * segment;
  OneRank rank(Collective::all_gather, schedules::Algorithm::ring, 2, std::size_t{5} * 64, 3,
               false);
  for (std::ptrdiff_t s = 0; s < 3; ++s)
    CHECK(rank.where(1, static_cast<std::size_t>(s)) == block + s * segment);
  CHECK(rank.where(1, 3) == must_wait);
  rank.take(1);
  CHECK(rank.where(1, 0) == block + segment);
  CHECK(rank.where(1, 2) == must_wait);
  rank.finish(rank.start(1));  // segment 0 is complete
  CHECK(rank.where(1, 2) == block + 3 * segment);
  for (int s = 1; s < 5; ++s) {
    CHECK(rank.where(1, 4) == must_wait);  // there is no such frame
    rank.take(1);
    rank.finish(rank.start(1));
  }
  CHECK(rank.run.complete());
}

// Rank 0 of three receives from rank 2: slices 2 and 1, to add and pass on, then the results of
// slices 0 and 2.
TEST_CASE("a frame ahead waits for the steps of its slice and for links that read its memory") {
  for (const bool in_place : {false, true}) {
    INFO((in_place ? "in place" : "out of place"));
    OneRank rank(Collective::all_reduce, schedules::Algorithm::ring, 3, 60, 1, in_place);
    const std::ptrdiff_t slice = 20 * sizeof(float);
    std::vector<std::uint32_t> order;
    for (std::uint32_t frame = 0; frame < 4; ++frame)
      order.push_back(rank.program.steps()[rank.program.receive_step(rank.peer(2), frame)].slice);
    REQUIRE(order == std::vector<std::uint32_t>{2, 1, 0, 2});
    CHECK(rank.where(2, 0) == borrowed);
    CHECK(rank.where(2, 1) == borrowed);
    CHECK(rank.where(2, 2) == must_wait);
    CHECK(rank.where(2, 3) == must_wait);

    // While the link reads slice 0 of the input, slice 0 of the output may come.
    const operation::FramePlace first = rank.start(1);
    CHECK(rank.where(2, 2) == (in_place ? must_wait : std::optional<std::ptrdiff_t>(0)));
    rank.run.payload_released(first);
    CHECK(rank.where(2, 2) == 0);
    rank.run.send_finished(first);

    // The sum of slice 2 must have been sent before its result may overwrite it.
    rank.take(2);
    CHECK(rank.where(2, 0) == borrowed);
    CHECK(rank.where(2, 2) == must_wait);
    const operation::FramePlace sum = rank.start(1);
    CHECK(rank.where(2, 2) == must_wait);
    rank.run.payload_released(sum);
    CHECK(rank.where(2, 2) == 2 * slice);
    rank.run.send_finished(sum);
    CHECK(rank.where(2, 3) == must_wait);
    CHECK_FALSE(rank.run.complete());
  }
}

TEST_CASE("nothing is foreseen in staging memory that has not been given") {
  OneRank rank(Collective::reduce_scatter, schedules::Algorithm::ring, 3, 20, 1, false);
  REQUIRE(rank.run.waits_for_staging());
  CHECK(rank.where(2, 0) == must_wait);
  CHECK(rank.where(2, 1) == must_wait);
  std::vector<std::byte> staging(rank.run.staging_bytes_needed());
  rank.run.give_staging(staging.data());
  CHECK(rank.where(2, 0) == borrowed);
  CHECK(rank.where(2, 1) == borrowed);
  CHECK(rank.where(2, 2) == must_wait);
}

// SPDX-License-Identifier: Apache-2.0
//
// The check of sendrecv: the mem transport flips a bit of one message, and the bench must count it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "catch.h"
#include "support/ranks.h"
#include "tools/measure/measure.h"

using rondo::Communicator;
using rondo::testing::expect;
using rondo::testing::run_communicators;
using rondo::testing::Setup;
using rondo::tools::Clocks;
using rondo::tools::Conditions;
using rondo::tools::Measurement;
using rondo::tools::Operation;
using rondo::tools::Row;
using rondo::tools::Stop;

namespace {

using Flip = rondo::mem::MemFaults::Flip;

constexpr std::uint64_t bytes = 4096;

// One timed iteration of four messages of each kind.
Conditions few_messages() {
  Conditions conditions;
  conditions.largest = bytes;
  conditions.warmups = 0;
  conditions.iterations = 1;
  conditions.in_a_row = 4;
  conditions.window = 4;
  return conditions;
}

Row measured(Operation operation, int size, std::optional<Flip> flip = {}) {
  Setup setup;
  setup.size = size;
  if (flip) setup.faults.flips.push_back(*flip);
  std::array<Row, 3> rows;
  run_communicators(setup, "messages", [&](Communicator& communicator, int rank) {
    const Conditions conditions = few_messages();
    const Stop stop;
    Clocks clocks(communicator);
    Measurement measurement(communicator, {conditions, stop, clocks}, 4,
                            [](std::uint64_t, std::uint64_t) {});
    measurement.choose(operation, rondo::DType::f32, rondo::ReduceOp::sum, 0);
    rows[static_cast<std::size_t>(rank)] = measurement.measure(bytes, false);
  });
  for (int rank = 1; rank < size; ++rank)
    CHECK(rows[static_cast<std::size_t>(rank)].wrong == rows[0].wrong);
  return rows[0];
}

}  // namespace

TEST_CASE("messages that come as they were sent are right") {
  for (const int size : {1, 2, 3}) CHECK(measured(Operation::sendrecv(), size).wrong == 0);
  const Row row = measured(Operation::one_way(), 2);
  CHECK(row.wrong == 0);
  REQUIRE(row.latency);
  CHECK(row.latency->min_us > 0);
  CHECK(row.latency->min_us <= row.latency->p50_us);
  CHECK(row.time.min_us > 0);
}

TEST_CASE("a flipped bit of a message is one wrong element of the bench") {
  const auto flip = [](int from, int to, std::uint64_t frame) {
    return Flip{.from = from, .to = to, .lane = rondo::transports::Lane::messages, .frame = frame};
  };
  CHECK(measured(Operation::sendrecv(), 3, flip(0, 1, 0)).wrong == 1);
  CHECK(measured(Operation::sendrecv(), 3, flip(2, 0, 3)).wrong == 1);
  // In one direction: the third message of the stream, then both messages of the ping-pong. Before
  // the first come the four of the stream and an empty one.
  CHECK(measured(Operation::one_way(), 2, flip(0, 1, 2)).wrong == 1);
  CHECK(measured(Operation::one_way(), 2, flip(0, 1, 4)).wrong == 1);
  CHECK(measured(Operation::one_way(), 2, flip(1, 0, 0)).wrong == 1);
}

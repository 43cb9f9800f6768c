// SPDX-License-Identifier: Apache-2.0
//
// Messages between ranks as the bench measures them. For the check of their data the mem transport
// flips a bit of one message, and the bench must count it.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "catch.h"
#include "support/ranks.h"
#include "tools/ceilings/rounds.h"
#include "tools/measure/measure.h"
#include "tools/measure/messages.h"
#include "tools/measure/operation.h"

using rondo::Buffer;
using rondo::Communicator;
using rondo::DType;
using rondo::Memory;
using rondo::Work;
using rondo::testing::expect;
using rondo::testing::run_communicators;
using rondo::testing::Setup;
using namespace rondo::tools;

namespace {

using Flip = rondo::mem::MemFaults::Flip;

constexpr std::uint64_t bytes = 4096;
constexpr std::uint32_t data_tag = 0, answer_tag = 1, other_tag = 9;

// One timed iteration of four messages of each kind.
Conditions conditions() {
  Conditions conditions;
  conditions.largest = bytes;
  conditions.warmups = 0;
  conditions.iterations = 1;
  conditions.in_a_row = conditions.window = 4;
  return conditions;
}

Row measured(Operation operation, int size, std::optional<Flip> flip = {}) {
  Setup setup;
  setup.size = size;
  if (flip) setup.faults.flips.push_back(*flip);
  std::array<Row, 4> rows;
  run_communicators(setup, "messages", [&](Communicator& communicator, int rank) {
    const Conditions how = conditions();
    Stop stop;
    Clocks clocks(communicator);
    Measurement measurement(communicator, Iterations::Context{how, stop, clocks}, 4,
                            [](std::uint64_t, std::uint64_t) {});
    measurement.choose(operation, {});
    rows[static_cast<std::size_t>(rank)] = measurement.measure(bytes, false);
  });
  for (int rank = 1; rank < size; ++rank) {
    CHECK(rows[static_cast<std::size_t>(rank)].wrong == rows[0].wrong);
    CHECK(rows[static_cast<std::size_t>(rank)].time.p50_us == rows[0].time.p50_us);
  }
  return rows[0];
}

Flip flip(int from, int to, std::uint64_t frame) {
  return {.from = from, .to = to, .lane = rondo::transports::Lane::messages, .frame = frame};
}

// Gives Messages what it needs of a rank: three messages of this many bytes, not checked.
struct Three {
  Three(Communicator& communicator, const Role& role, std::size_t size)
      : pattern(Call{Operation::bandwidth(), DType::u8, rondo::ReduceOp::sum, 0,
                     communicator.rank(), communicator.size()}),
        in(Memory(3 * size)),
        out(Memory(3 * size)),
        messages(communicator, pattern, role,
                 {Buffer{in.data(), size, DType::u8}, Buffer{out.data(), size, DType::u8}, size, 3},
                 {in, out}, false, false) {}

  Pattern pattern;
  BenchMemory in, out;
  Messages messages;
};

}  // namespace

TEST_CASE("messages that come as they were sent are right") {
  for (const int size : {1, 2, 3}) CHECK(measured(Operation::sendrecv(), size).wrong == 0);
  const Row row = measured(Operation::one_way(), 2);
  CHECK(row.wrong == 0);
  REQUIRE(row.latency);
  CHECK(row.latency->min_us > 0);
  CHECK(row.latency->min_us <= row.latency->p50_us);
  CHECK(row.time.min_us > 0);
  for (const Operation& operation :
       {Operation::latency(), Operation::bandwidth(), Operation::bibandwidth(), Operation::rate()})
    CHECK(measured(operation, 2).wrong == 0);
  CHECK(measured(Operation::rate(), 4).wrong == 0);
}

TEST_CASE("a flipped bit of a message is one wrong element of the bench") {
  CHECK(measured(Operation::sendrecv(), 3, flip(0, 1, 0)).wrong == 1);
  CHECK(measured(Operation::sendrecv(), 3, flip(2, 0, 3)).wrong == 1);
  // In one direction: the third message of the window, then both messages of the ping-pong. Before
  // the first come the four of the window and an empty one.
  CHECK(measured(Operation::one_way(), 2, flip(0, 1, 2)).wrong == 1);
  CHECK(measured(Operation::one_way(), 2, flip(0, 1, 4)).wrong == 1);
  CHECK(measured(Operation::one_way(), 2, flip(1, 0, 0)).wrong == 1);
}

TEST_CASE("a flipped bit is one wrong element in each direction and in each pair") {
  CHECK(measured(Operation::latency(), 2, flip(0, 1, 0)).wrong == 1);
  CHECK(measured(Operation::latency(), 2, flip(1, 0, 0)).wrong == 1);
  CHECK(measured(Operation::bandwidth(), 2, flip(0, 1, 3)).wrong == 1);
  // Rank 1 answers with an empty message alone, so there is no bit to flip.
  CHECK(measured(Operation::bandwidth(), 2, flip(1, 0, 0)).wrong == 0);
  for (const std::uint64_t message : {0, 3}) {
    CHECK(measured(Operation::bibandwidth(), 2, flip(0, 1, message)).wrong == 1);
    CHECK(measured(Operation::bibandwidth(), 2, flip(1, 0, message)).wrong == 1);
    CHECK(measured(Operation::rate(), 4, flip(0, 2, message)).wrong == 1);
    CHECK(measured(Operation::rate(), 4, flip(1, 3, message)).wrong == 1);
  }
}

TEST_CASE("bandwidth and messages per second are those of all streams together") {
  const auto check = [](const Row& row, double streams) {
    CHECK(row.time.p50_us > 0);
    CHECK(row.rate == Approx(streams * 1e6 / row.time.p50_us));
    CHECK(row.algbw == Approx(streams * bytes / row.time.p50_us / 1e3));
    CHECK(row.busbw == row.algbw);
    CHECK(row.traffic == 2 * streams * bytes);
  };
  check(measured(Operation::bandwidth(), 2), 1);
  check(measured(Operation::bibandwidth(), 2), 2);
  check(measured(Operation::rate(), 2), 1);
  check(measured(Operation::rate(), 4), 2);
  const Row latency = measured(Operation::latency(), 2);
  CHECK(latency.time.p50_us > 0);
  CHECK((latency.rate == 0 && latency.algbw == 0 && latency.busbw == 0));
  CHECK(latency.calls == 1);
}

TEST_CASE("ranks that time nothing have no time") {
  const auto times = [](Operation operation, int size) {
    std::vector<bool> some;
    for (const double time : measured(operation, size).rank_p50_us) some.push_back(time > 0);
    return some;
  };
  CHECK(times(Operation::latency(), 2) == std::vector{true, false});
  CHECK(times(Operation::bandwidth(), 2) == std::vector{true, false});
  CHECK(times(Operation::bibandwidth(), 2) == std::vector{true, true});
  CHECK(times(Operation::rate(), 4) == std::vector{true, true, false, false});
  CHECK(times(Operation::sendrecv(), 3) == std::vector{true, true, true});
}

TEST_CASE("a ceiling loads the links of the pairs") {
  for (const int rank : {0, 1, 2, 3}) {
    const auto directions = directions_of(Operation::rate(), rank, 4);
    CHECK((directions.sends == rank < 2 && directions.receives == rank >= 2));
    CHECK((directions.right == (rank + 2) % 4 && directions.left == (rank + 2) % 4));
  }
  CHECK((directions_of(Operation::bandwidth(), 0, 2).sends &&
         !directions_of(Operation::bandwidth(), 0, 2).receives));
  for (const int rank : {0, 1}) {
    const auto directions = directions_of(Operation::bibandwidth(), rank, 2);
    CHECK((directions.sends && directions.receives));
  }
}

// Rank 1 takes no message before it has heard of all three. They are so large that a send ends only
// when its message was taken. A first barrier, in which rank 0 sends nothing else, says how many
// frames a barrier has.
TEST_CASE("all messages of a window are under way at once") {
  run_communicators({}, "a window", [](Communicator& communicator, int rank) {
    const Role role = role_of(Operation::bandwidth(), rank, 2);
    constexpr std::size_t size = 100'000;
    if (rank == 0) {
      communicator.receive(Buffer{}, 1, other_tag).wait();
      communicator.barrier().wait();
      communicator.receive(Buffer{}, 1, other_tag).wait();
      Three three(communicator, role, size);
      expect(three.messages.window() > 0, "no time");
      communicator.send(Buffer{}, 1, other_tag).wait();
      return;
    }
    const auto frames = [&] { return communicator.statistics().frames_received; };
    std::vector<std::byte> got(3 * size);
    const auto before = frames();
    communicator.send(Buffer{}, 0, other_tag).wait();
    communicator.barrier().wait();
    const auto after = frames();
    communicator.send(Buffer{}, 0, other_tag).wait();
    communicator.barrier().wait();
    const Work other = communicator.receive(Buffer{}, 0, other_tag);  // with it the rank listens
    while (frames() < after + (after - before) + 3) other.wait_for(std::chrono::microseconds(100));
    for (int i = 0; i < 3; ++i)
      communicator.receive(Buffer{got.data() + i * size, size, DType::u8}, 0, data_tag).wait();
    communicator.send(Buffer{}, 0, answer_tag).wait();
    other.wait();
  });
}

// Rank 1 has all its messages taken before it calls a receive.
TEST_CASE("a rank calls its receives before it waits for what it sends") {
  run_communicators({}, "both directions", [](Communicator& communicator, int rank) {
    constexpr std::size_t size = 100'000;
    if (rank == 0) {
      Three three(communicator, role_of(Operation::bibandwidth(), rank, 2), size);
      expect(three.messages.window() > 0, "no time");
      return;
    }
    std::vector<std::byte> sent(size), got(size);
    communicator.barrier().wait();
    for (int i = 0; i < 3; ++i)
      communicator.send(Buffer{sent.data(), size, DType::u8}, 0, data_tag).wait();
    for (int i = 0; i < 3; ++i)
      communicator.receive(Buffer{got.data(), size, DType::u8}, 0, data_tag).wait();
    communicator.send(Buffer{}, 0, answer_tag).wait();
    communicator.receive(Buffer{}, 0, answer_tag).wait();
  });
}

// A small message that comes before its receive takes memory of the receiver.
TEST_CASE("all receives of a window are called before its first send") {
  run_communicators({}, "receives first", [](Communicator& communicator, int rank) {
    constexpr std::size_t size = 4096;
    Three three(communicator, role_of(Operation::bandwidth(), rank, 2), size);
    for (int i = 0; i < 100; ++i) three.messages.window();
    expect(communicator.statistics().staging_bytes == 0, "a message came before its receive");
  });
}

// SPDX-License-Identifier: Apache-2.0
//
// Operations that are started while an earlier one still uses their memory.
#include <array>
#include <cstdint>
#include <latch>
#include <numeric>
#include <string>
#include <vector>

#include <rondo/work.h>

#include "catch.h"
#include "cluster.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

constexpr std::size_t held_count = 5000;

Buffer whole(std::vector<float>& values) {
  return {values.data(), values.size(), DType::f32};
}

std::byte* whole_bytes(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

std::vector<float> filled(float value) {
  return std::vector<float>(held_count, value);
}

Setup two_ranks(Over over, const std::string& algorithm) {
  Setup setup;
  setup.over = over;
  setup.options.algorithm = algorithm;
  setup.options.segment_bytes = 4096;
  return setup;
}

std::string error_of(const Work& work) {
  try {
    work.wait();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

// Rank 1 calls nothing before rank 0 has started everything: if a start waited, the test would not
// get on.
TEST_CASE("an operation on memory in use starts at once and begins later") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const std::string algorithm = GENERATE("", "ring", "doubling");
  std::latch started(1);
  run_communicators(two_ranks(over, algorithm), "held", [&](Communicator& c, int rank) {
    auto x = filled(static_cast<float>(rank + 1)), y = filled(-1), z = filled(-1);
    if (rank == 1) started.wait();
    const Work twofold = c.all_reduce(whole(x), whole(x), ReduceOp::sum);
    const Work fourfold = c.all_reduce(whole(x), whole(x), ReduceOp::sum);
    const Work copied = c.all_reduce(whole(x), whole(y), ReduceOp::sum);
    const Work urgent =
        c.all_reduce(whole(x), whole(z), ReduceOp::max, {.priority = Priority::urgent});
    if (rank == 0) {
      expect(!twofold.done() && !fourfold.done() && !copied.done() && !urgent.done(),
             "done without rank 1");
      started.count_down();
    }
    for (const Work* const work : {&urgent, &copied, &fourfold, &twofold}) work->wait();
    expect(x == filled(6) && y == filled(12) && z == filled(6), "a result is wrong");
  });
}

// Two hosts of two ranks: sums and copies inside a host have queues of their own.
TEST_CASE("two-level operations on memory in use begin later too") {
  Setup setup;
  setup.size = 4;
  setup.hosts = {0, 0, 1, 1};
  setup.faults.windows = true;
  setup.options.algorithm = "two_level";
  setup.options.segment_bytes = 4096;
  std::latch started(1);
  run_communicators(setup, "held", [&](Communicator& c, int rank) {
    auto x = filled(1);
    if (rank != 0) started.wait();
    std::vector<Work> works;
    for (int i = 0; i < 5; ++i)
      if (i % 2 == 0) {
        works.push_back(c.all_reduce(whole(x), whole(x), ReduceOp::sum));
      } else {
        works.push_back(c.reduce(whole(x), whole(x), ReduceOp::sum, i));
        works.push_back(c.broadcast(whole(x), whole(x), i));
      }
    if (rank == 0) started.count_down();
    for (const Work& work : works) work.wait();
    expect(x == filled(1024), "a result is wrong");
  });
}

TEST_CASE("hundreds of operations follow each other on one buffer") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  Setup setup;
  setup.size = 3;
  setup.over = over;
  run_communicators(setup, "many", [](Communicator& c, int rank) {
    std::array<std::uint64_t, 3> x{};
    x.fill(static_cast<std::uint64_t>(rank));
    const Buffer all{x.data(), x.size(), DType::u64};
    std::vector<Work> works;
    std::uint64_t wanted = 0 + 1 + 2;
    for (int i = 0; i < 400; ++i) {
      const Priority priority = i % 7 == 0 ? Priority::urgent : Priority::bulk;
      works.push_back(c.all_reduce(all, all, ReduceOp::sum, {.priority = priority}));
      if (i > 0) wanted *= 3;
    }
    works.back().wait();
    for (const Work& work : works) work.wait();
    expect(x == std::array{wanted, wanted, wanted}, "a result is wrong");
  });
}

TEST_CASE("nobody needs to wait for operations on memory in use") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  run_communicators(two_ranks(over, ""), "background", [](Communicator& c, int) {
    auto x = filled(1);
    for (int i = 0; i < 4; ++i) static_cast<void>(c.all_reduce(whole(x), whole(x), ReduceOp::sum));
    c.barrier({.priority = Priority::urgent}).wait();
    c.barrier().wait();  // begins after the others, and ends after them
    expect(x == filled(16), "a result is wrong");
  });
}

// Rank 1 receives the message with tag 2 before it calls the all_reduce: the message must not wait
// behind the one with tag 1, which does wait for the all_reduce.
TEST_CASE("a message waits for memory in use, and only those that follow it wait too") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  run_communicators(two_ranks(over, ""), "messages", [](Communicator& c, int rank) {
    auto x = filled(static_cast<float>(rank + 1)), y = filled(7), z = filled(9), given = filled(3);
    if (rank == 0) {
      const Work sum = c.all_reduce(whole(x), whole(x), ReduceOp::sum);
      const Work held = c.send(whole(x), 1, 1);
      const Work passes = c.send(whole(y), 1, 2);
      const Work follows = c.send(whole(z), 1, 1);
      const Work taken = c.receive(whole(x), 1, 3);
      for (const Work* const work : {&sum, &held, &passes, &follows, &taken}) work->wait();
      expect(x == filled(3), "the held receive got something else");
      return;
    }
    auto got = filled(-1);
    c.receive(whole(got), 0, 2).wait();
    expect(got == filled(7), "the message that passes is wrong");
    c.all_reduce(whole(x), whole(x), ReduceOp::sum).wait();
    c.receive(whole(got), 0, 1).wait();
    expect(got == filled(3), "the held message has not the sum");
    c.receive(whole(got), 0, 1).wait();
    expect(got == filled(9), "the message that follows is wrong");
    c.send(whole(given), 0, 3).wait();
  });
}

TEST_CASE("receives from any rank and from one keep their order while the first is held") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const bool any_first = GENERATE(false, true);
  run_communicators(two_ranks(over, ""), "any rank", [=](Communicator& c, int rank) {
    auto x = filled(1), y = filled(-1), z = filled(-1), given = filled(5), next = filled(6);
    if (rank == 0) {
      const Work sum = c.all_reduce(whole(x), whole(x), ReduceOp::sum);
      const Work held = any_first ? c.receive_any(whole(x), 4) : c.receive(whole(x), 1, 4);
      const Work follows = any_first ? c.receive(whole(y), 1, 4) : c.receive_any(whole(y), 4);
      c.receive_any(whole(z), 5).wait();  // another tag passes
      c.send(whole(z), 1, 6).wait();
      for (const Work* const work : {&sum, &held, &follows}) work->wait();
      expect(x == filled(5) && y == filled(6), "the receives have changed places");
      expect(held.source() == 1 && follows.source() == 1, "source");
      return;
    }
    c.send(whole(y), 0, 5).wait();
    c.receive(whole(z), 0, 6).wait();
    c.send(whole(given), 0, 4).wait();
    c.send(whole(next), 0, 4).wait();
    c.all_reduce(whole(x), whole(x), ReduceOp::sum).wait();
  });
}

// Rank 0 holds its second call while the frames of rank 1 for it arrive. The other ranks use other
// memory, so they hold nothing.
TEST_CASE("frames for a call that is held wait for it") {
  constexpr std::size_t few = 2 * 64;  // all segments are in flight at once
  auto shared = filled(1), in = filled(1);
  std::array<std::vector<float>, 3> outs{filled(5), filled(5), filled(0)};
  Cluster cluster(3);
  cluster.fabric().hold(2, 0, transports::Lane::bulk);
  std::vector<Work> works;
  for (const int rank : {0, 1, 2}) {
    auto& x = rank == 0 ? shared : in;
    works.emplace_back(cluster[rank].start(
        make_call(Collective::reduce, schedules::Algorithm::star, x, x, few, 0)));
    auto& y = rank == 0 ? shared : outs[static_cast<std::size_t>(rank)];
    works.emplace_back(cluster[rank].start(
        make_call(Collective::broadcast, schedules::Algorithm::star, y, y, few, 1)));
  }
  CHECK_FALSE(works[3].wait_for(std::chrono::milliseconds{20}));
  CHECK_FALSE(works[1].wait_for(std::chrono::milliseconds{20}));
  CHECK(shared[0] != 5);
  cluster.fabric().release(2, 0, transports::Lane::bulk);
  for (const Work& work : works) CHECK(error_of(work) == "no error");
  CHECK(shared[few - 1] == 5);
}

TEST_CASE("the deadline of a call that is held says what it waits for") {
  auto x = filled(1), y = filled(0);
  Cluster cluster(2);
  const auto start = [&](Priority priority, std::vector<float>& out,
                         std::chrono::milliseconds limit) {
    schedules::Call call =
        make_call(Collective::all_reduce, schedules::Algorithm::ring, x, out, held_count);
    call.priority = priority;
    call.time_limit = limit;
    return Work(cluster[0].start(call));
  };
  const Work first = start(Priority::bulk, x, std::chrono::seconds{20});
  const Work second = start(Priority::bulk, x, std::chrono::seconds{20});
  const Work third = start(Priority::urgent, y, std::chrono::milliseconds{50});
  const std::string text = error_of(third);
  INFO(text);
  CHECK(text.find("urgent all_reduce #1 (5000 f32 sum, ring over mem): ") == 0);
  CHECK(text.find("not done within 0.05 s: it has not begun, because it waits for the end of "
                  "all_reduce #1 (5000 f32 sum), which waits for rank 1") != std::string::npos);
  CHECK(first.error() == Errc::deadline_exceeded);
  CHECK(second.error() == Errc::deadline_exceeded);
}

// The third message waits for the second, and so for the second sum.
TEST_CASE("the deadline of a message that is held names what it waits for, and nothing else") {
  auto x = filled(1), y = filled(2), z = filled(3);
  Cluster cluster(2);
  std::vector<Work> works;
  for (auto* const memory : {&x, &y})
    works.emplace_back(cluster[0].start(make_call(
        Collective::all_reduce, schedules::Algorithm::ring, *memory, *memory, held_count)));
  const auto send = [&](std::vector<float>& memory, std::uint32_t tag,
                        std::chrono::milliseconds limit) {
    const point::PointTransfer transfer{true,       1,          {tag, 0},
                                        DType::f32, held_count, whole_bytes(memory)};
    works.emplace_back(cluster[0].start(point::PointCall{
        {&transfer, 1}, {Collective::send, false, 1, tag, 1, held_count * 4}, limit, ""}));
  };
  send(x, 1, std::chrono::seconds{20});
  send(y, 2, std::chrono::seconds{20});
  send(z, 2, std::chrono::milliseconds{50});
  const std::string text = error_of(works.back());
  INFO(text);
  CHECK(text.find("it has not begun, because it waits for the end of all_reduce #2 (5000 f32 sum), "
                  "which waits for rank 1") != std::string::npos);
}

}  // namespace rondo::testing

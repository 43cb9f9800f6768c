// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/engine.h"

#include <rondo/work.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "catch.h"
#include "cluster.h"

using namespace rondo;

namespace {

constexpr std::size_t count = 1000;

// Stands before its cluster: an operation that nobody waits for uses it until the cluster is gone.
struct Buffers {
  std::vector<float> in = std::vector<float>(count, 1), out = std::vector<float>(count, -1);
};

std::string failure_of(Work& work) {
  try {
    work.wait();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The failure of rank 0, which blames these ranks.
void check_blame(const Cluster& cluster, const std::vector<int>& culprits, bool on_link = false) {
  const operation::Failure& failure = cluster.failures(0).at(0).failure.value();
  CHECK(failure.culprits == culprits);
  CHECK(failure.seen_by == 0);
  CHECK(failure.link.empty() != on_link);
}

}  // namespace

TEST_CASE("operations of one thread run while nobody waits") {
  std::vector<Buffers> buffers(3);
  Cluster cluster(3);
  std::vector<Work> works;
  for (int rank = 0; rank < 3; ++rank) {
    auto& b = buffers[static_cast<std::size_t>(rank)];
    works.emplace_back(cluster[rank].start(
        make_call(Collective::all_reduce, schedules::Algorithm::ring, b.in, b.out, count)));
  }
  for (Work& work : works) work.wait();
  for (const Buffers& b : buffers) CHECK(b.out == std::vector<float>(count, 3));
}

TEST_CASE("an operation that is dropped still runs") {
  Buffers a, b, c, d;
  Cluster cluster(2);
  {
    const Work dropped(cluster[0].start(
        make_call(Collective::all_reduce, schedules::Algorithm::star, a.in, a.out, count)));
  }
  {
    const Work dropped(cluster[1].start(
        make_call(Collective::all_reduce, schedules::Algorithm::star, b.in, b.out, count)));
  }
  Work last0(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::star, c.in, c.out, count)));
  Work last1(cluster[1].start(
      make_call(Collective::all_reduce, schedules::Algorithm::star, d.in, d.out, count)));
  last1.wait();
  last0.wait();
  CHECK(a.out == std::vector<float>(count, 2));
  CHECK(b.out == std::vector<float>(count, 2));
}

TEST_CASE("operations that follow one which ended before an earlier one run too") {
  constexpr int ranks = 3, operations = 4;
  constexpr std::size_t large = 3 * 64;  // all segments are in flight at once
  std::vector<float> in(large, 1), out[ranks][operations];
  Cluster cluster(ranks);
  // Rank 0 gets a large buffer from rank 1 and sends a small one to rank 2, and once more. The
  // large ones are held back, so the small ones end first.
  cluster.fabric().hold(1, 0, transports::Lane::bulk);
  std::vector<Work> works[ranks];
  const auto start = [&](int rank, int operation) {
    out[rank][operation].assign(large, -1);
    const bool first = operation % 2 == 0;
    works[rank].emplace_back(cluster[rank].start(
        make_call(first ? Collective::broadcast : Collective::reduce, schedules::Algorithm::star,
                  in, out[rank][operation], first ? large : 64, first ? 1 : 2)));
  };
  for (const int operation : {0, 1})
    for (int rank = 0; rank < ranks; ++rank) start(rank, operation);
  works[0][1].wait();
  CHECK_FALSE(works[0][0].done());
  for (const int operation : {2, 3})
    for (int rank = 0; rank < ranks; ++rank) start(rank, operation);
  works[0][3].wait();
  CHECK_FALSE(works[0][0].done());
  CHECK_FALSE(works[0][2].done());
  cluster.fabric().release(1, 0, transports::Lane::bulk);
  for (std::vector<Work>& of_rank : works)
    for (Work& work : of_rank) work.wait();
  for (const int operation : {0, 2}) CHECK(out[0][operation] == in);
  for (const int operation : {1, 3}) CHECK(out[2][operation][63] == 3);
}

TEST_CASE("a function given to on_done runs once, also after the end") {
  Buffers a, b;
  Cluster cluster(2);
  std::atomic<int> calls{0};
  Work first(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  first.on_done([&](std::error_code code) {
    CHECK_FALSE(code);
    ++calls;
  });
  Work second(cluster[1].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, b.in, b.out, count)));
  second.wait();
  first.wait();
  second.on_done([&](std::error_code) { ++calls; });
  while (calls < 2) std::this_thread::yield();
  CHECK(calls == 2);
}

TEST_CASE("different calls are a mismatch that names both") {
  Buffers a, b;
  Cluster cluster(2);
  Work first(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  Work second(cluster[1].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, b.in, b.out, count - 1)));
  const std::string text = failure_of(first);
  CHECK(contains(text, "all_reduce #1 (1000 f32 sum, ring over mem): "));
  CHECK(contains(text,
                 "rank 1 called all_reduce #1 (999 f32 sum) where rank 0 called all_reduce #1 "
                 "(1000 f32 sum)"));
  CHECK(first.error() == Errc::mismatch);
  CHECK(contains(failure_of(second), "rank 0 called all_reduce #1 (1000 f32 sum)"));
  check_blame(cluster, {0, 1}, true);
}

TEST_CASE("a frame that comes before its operation waits for it") {
  Buffers a, b;
  Cluster cluster(2);
  Work first(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::doubling, a.in, a.out, 10)));
  CHECK_FALSE(first.wait_for(std::chrono::milliseconds{20}));
  Work second(cluster[1].start(
      make_call(Collective::all_reduce, schedules::Algorithm::doubling, b.in, b.out, 10)));
  second.wait();
  first.wait();
  CHECK(b.out[9] == 2);
}

TEST_CASE("a held frame of another algorithm is a mismatch when its operation starts") {
  Buffers a, b;
  Cluster cluster(3);
  Work first(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  CHECK_FALSE(first.wait_for(std::chrono::milliseconds{20}));
  Work second(cluster[1].start(
      make_call(Collective::all_reduce, schedules::Algorithm::star, b.in, b.out, count)));
  CHECK(contains(failure_of(second), "the settings differ"));
}

// With the root on rank 1, rank 2 has no frame for rank 0 in the reduce: the first one that comes
// is one of the all_reduce, about which the ranks agree.
TEST_CASE("a frame of a later call shows that the earlier one differs") {
  std::array<Buffers, 3> first, second;
  Cluster cluster(3);
  std::vector<Work> works;
  for (const int rank : {0, 1, 2}) {
    Buffers &a = first[static_cast<std::size_t>(rank)], &b = second[static_cast<std::size_t>(rank)];
    works.emplace_back(cluster[rank].start(make_call(Collective::reduce, schedules::Algorithm::star,
                                                     a.in, a.out, count, rank == 0 ? 0 : 1)));
    works.emplace_back(cluster[rank].start(
        make_call(Collective::all_reduce, schedules::Algorithm::ring, b.in, b.out, count)));
  }
  const std::string text = failure_of(works[0]);
  INFO(text);
  CHECK(works[0].error() == Errc::mismatch);
  CHECK(contains(text,
                 "rank 2 sent data of all_reduce #2 (1000 f32 sum) where rank 0 waits for data of "
                 "reduce #1 (1000 f32 sum, root 0): rank 2 called #1 in another way, or left it "
                 "out; all ranks must make the same calls in the same order"));
}

// Rank 0 needs no frame of rank 1 in either of its calls.
TEST_CASE("a held frame is a mismatch when a call begins that needs none of its sender") {
  std::array<Buffers, 2> first, second;
  Cluster cluster(3);
  const auto ring = [&](int rank) {
    Buffers& of = first[static_cast<std::size_t>(rank)];
    return Work(cluster[rank].start(
        make_call(Collective::all_reduce, schedules::Algorithm::ring, of.in, of.out, count)));
  };
  const auto star = [&](int rank, Collective operation) {
    Buffers& of = second[static_cast<std::size_t>(rank)];
    return Work(cluster[rank].start(
        make_call(operation, schedules::Algorithm::star, of.in, of.out, count)));
  };
  Work waits_for_2 = ring(0);
  const Work also = ring(1), sends = star(1, Collective::reduce);
  CHECK_FALSE(sends.wait_for(std::chrono::milliseconds{20}));
  CHECK_FALSE(waits_for_2.wait_for(std::chrono::milliseconds{20}));
  Work begins = star(0, Collective::broadcast);
  const std::string text = failure_of(begins);
  INFO(text);
  CHECK(contains(text, "rank 1 called reduce #2"));
  check_blame(cluster, {0, 1}, true);
}

TEST_CASE("a rank that never calls trips the deadline of the whole operation") {
  Buffers a;
  Cluster cluster(2);
  schedules::Call call =
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count);
  call.time_limit = std::chrono::milliseconds{50};
  Work work(cluster[0].start(call));
  CHECK(contains(failure_of(work), "not done within 0.05 s: rank 0 waits for data from rank 1"));
  check_blame(cluster, {1});
  CHECK(work.error() == Errc::deadline_exceeded);
  Work later(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  CHECK(later.done());
  CHECK(later.error() == Errc::deadline_exceeded);
}

TEST_CASE("the deadline passes while nobody waits") {
  Buffers a;
  Cluster cluster(2);
  std::atomic<bool> ended{false};
  schedules::Call call =
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count);
  call.time_limit = std::chrono::milliseconds{50};
  Work work(cluster[0].start(call));
  work.on_done([&](std::error_code) { ended = true; });
  while (!ended) std::this_thread::yield();
  CHECK(work.error() == Errc::deadline_exceeded);
}

TEST_CASE("a rank that left fails later operations at once, and earlier ones not at all") {
  Buffers a, b;
  Cluster cluster(2);
  Work first(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  Work second(cluster[1].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, b.in, b.out, count)));
  second.wait();
  cluster[0].peer_left(1, {1, 0});
  first.wait();
  Work later(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  CHECK(later.error() == Errc::peer_left);
  CHECK(contains(later.message(), "rank 1 has left"));
  check_blame(cluster, {1});
}

TEST_CASE("a rank that left after its last operation is in that one, whenever this rank calls it") {
  Buffers a, b;
  Cluster cluster(2);
  Work last(cluster[1].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, b.in, b.out, count)));
  cluster[0].peer_left(1, {1, 0});
  Work own(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  CHECK_NOTHROW(own.wait());
  CHECK_NOTHROW(last.wait());
}

TEST_CASE("of several ranks that left the one that has done too little is named, not the first") {
  Buffers a;
  Cluster cluster(4);
  cluster[0].peer_left(1, {100, 0});
  cluster[0].peer_left(3, {0, 0});
  cluster[0].peer_left(2, {0, 0});  // of two that have done the same, the lower rank
  schedules::Call call =
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count);
  call.time_limit = std::chrono::seconds{10};
  Work later(cluster[0].start(call));
  CHECK_THROWS_AS(later.wait_for(std::chrono::seconds{20}), Error);
  CHECK(later.error() == Errc::peer_left);
  CHECK(contains(later.message(),
                 "rank 2 has left: it destroyed its communicator after operation #0"));
}

TEST_CASE("fail ends what is pending and what comes with the first cause") {
  Buffers a;
  Cluster cluster(2);
  Work work(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  cluster[0].fail({Errc::aborted, "first"});
  cluster[0].fail({Errc::peer_lost, "second"});
  CHECK(contains(failure_of(work), "all_reduce #1 (1000 f32 sum, ring over mem): first"));
}

TEST_CASE("no peer writes into the memory of an operation that has failed") {
  mem::MemFaults faults;
  faults.grants = 4;
  faults.late = 20'000;
  Buffers a, b;
  Cluster cluster(2, faults);
  // All segments are in flight at once: rank 0 needs nothing more of rank 1 once that has started.
  constexpr std::size_t few = 3 * 64;
  const auto start = [&](int rank, Buffers& buffers) {
    return Work(cluster[rank].start(make_call(Collective::broadcast, schedules::Algorithm::star,
                                              buffers.in, buffers.out, few)));
  };
  Work receiver = start(1, b);  // grants its memory to rank 0
  // No header arrives, so the operation cannot end before fail().
  cluster.fabric().hold(0, 1, transports::Lane::bulk);
  Work sender = start(0, a);  // takes it at its word, and writes later
  cluster[1].fail({Errc::aborted, "given up"});
  CHECK(contains(failure_of(receiver), "given up"));
  const std::vector<float> used_again(count, 7);
  b.out = used_again;
  sender.wait();  // rank 0 has heard of no failure
  CHECK(b.out == used_again);
}

TEST_CASE("a flipped bit is never summed when checksums are on") {
  mem::MemFaults faults;
  faults.flips.push_back({0, 1, transports::Lane::bulk, 2, false, 12345});
  Buffers a, b;
  Cluster cluster(2, faults, true);
  Work first(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  Work second(cluster[1].start(
      make_call(Collective::all_reduce, schedules::Algorithm::ring, b.in, b.out, count)));
  CHECK(contains(failure_of(second), "checksum"));
  CHECK(second.error() == Errc::corrupt);
}

// Every rank starts an all_reduce of its values, and gets the same bits.
void all_reduce(Cluster& cluster, schedules::Algorithm algorithm, std::vector<Buffers>& ranks) {
  std::vector<Work> works;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    works.emplace_back(cluster[static_cast<int>(rank)].start(
        make_call(Collective::all_reduce, algorithm, ranks[rank].in, ranks[rank].out, count)));
  for (Work& work : works) work.wait();
  for (const Buffers& one : ranks)
    CHECK(std::memcmp(one.out.data(), ranks[0].out.data(), count * sizeof(float)) == 0);
}

TEST_CASE("checksums are right where a link cuts elements in two") {
  mem::MemFaults faults;
  faults.capacity = 50;
  std::vector<Buffers> ranks(3);
  Cluster cluster(3, faults, true);
  all_reduce(cluster, schedules::Algorithm::ring, ranks);
  CHECK(ranks[0].out == std::vector<float>(count, 3));
}

TEST_CASE("ranks that combine the same two values keep the same NaN") {
  std::vector<Buffers> ranks(2);
  for (const std::uint32_t rank : {0u, 1u})
    std::ranges::fill(ranks[rank].in, std::bit_cast<float>(0x7fc00000u + rank + 1));
  Cluster cluster(2);
  all_reduce(cluster, schedules::Algorithm::doubling, ranks);
  CHECK(std::isnan(ranks[0].out[0]));
}

TEST_CASE("handles outlive their engine") {
  Work work;
  {
    Buffers a;
    Cluster cluster(2);
    work = Work(cluster[0].start(
        make_call(Collective::all_reduce, schedules::Algorithm::ring, a.in, a.out, count)));
  }
  CHECK(work.done());
  CHECK(work.error() == Errc::aborted);
}

TEST_CASE("operations on the same memory follow each other") {
  std::vector<float> a(count, 1), b(count, 1);
  Cluster cluster(2);
  std::vector<Work> works;
  std::thread other([&] {
    Work first(cluster[1].start(
        make_call(Collective::all_reduce, schedules::Algorithm::ring, b, b, count)));
    Work second(cluster[1].start(
        make_call(Collective::all_reduce, schedules::Algorithm::doubling, b, b, count)));
    second.wait();
    first.wait();
  });
  works.emplace_back(
      cluster[0].start(make_call(Collective::all_reduce, schedules::Algorithm::ring, a, a, count)));
  works.emplace_back(cluster[0].start(
      make_call(Collective::all_reduce, schedules::Algorithm::doubling, a, a, count)));
  works[1].wait();
  CHECK(works[0].done());
  other.join();
  CHECK(a == std::vector<float>(count, 4));
  CHECK(b == std::vector<float>(count, 4));
}

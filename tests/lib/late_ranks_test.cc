// SPDX-License-Identifier: Apache-2.0
//
// A rank that calls later than the others is found, and nobody else is blamed.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "support/ranks.h"
#include "support/standard_error.h"

namespace rondo::testing {
namespace {

constexpr std::chrono::milliseconds lateness{5};

Setup setup_of(Over over, int size, const char* algorithm) {
  Setup setup;
  setup.over = over;
  setup.size = size;
  setup.options.algorithm = algorithm;
  return setup;
}

// Ranks call an operation, and all_reduce, until one of them, the judge, has seen enough. The last
// rank calls the operation when all others have. Rank 0 calls it after the root, which a busy
// machine may hold up.
class LateCalls {
 public:
  static constexpr int root = 2;

  explicit LateCalls(int size, int judge = 0, Collective operation = Collective::all_reduce)
      : late_(size - 1), judge_(judge), operation_(operation) {}

  template <class Enough>
  void run(Communicator& c, int rank, const Enough& enough) {
    std::vector<float> values(64);
    const Buffer both{values.data(), values.size(), DType::f32};
    std::vector<float> others(values.size());
    const Buffer other{others.data(), others.size(), DType::f32};
    for (int call = 1; call <= most; ++call) {
      std::ranges::fill(values, rank == judge_ && enough(c) ? 1 : 0);
      if (rank == late_) {
        while (called_ < call * late_) std::this_thread::yield();
        std::this_thread::sleep_for(lateness);
      }
      await_root(rank, 2 * call - 1);
      const Work work = operation_ == Collective::barrier     ? c.barrier()
                        : operation_ == Collective::broadcast ? c.broadcast(other, other, root)
                        : operation_ == Collective::reduce
                            ? c.reduce(other, other, ReduceOp::max, root)
                            : c.all_reduce(both, both, ReduceOp::max);
      if (rank != late_) ++called_;
      if (rank == root) root_called_ = 2 * call - 1;
      work.wait();
      if (operation_ != Collective::all_reduce) {
        await_root(rank, 2 * call);
        const Work verdict = c.all_reduce(both, both, ReduceOp::max);
        if (rank == root) root_called_ = 2 * call;
        verdict.wait();
      }
      if (values[0] == 1) return;
    }
    expect(false, "the late rank was not found");
  }

 private:
  void await_root(int rank, int calls) const {
    while (rank == 0 && root != late_ && root_called_ < calls) std::this_thread::yield();
  }

  static constexpr int most = 3000;
  const int late_, judge_;
  const Collective operation_;
  std::atomic<int> called_{0};       // by the others, in all calls
  std::atomic<int> root_called_{0};  // twice the calls, and one less between the two operations
};

}  // namespace

TEST_CASE("the rank that calls last is counted, with the time that the others waited for it") {
  const auto [over, algorithm] = GENERATE(std::pair(Over::shm, ""), std::pair(Over::tcp, "star"),
                                          std::pair(Over::tcp, "two_shot"));
  constexpr int size = 3, late = size - 1;
  constexpr std::uint64_t wanted = 50;
  Statistics of_rank_0;
  LateCalls calls(size);
  run_communicators(setup_of(over, size, algorithm), "late", [&](Communicator& c, int rank) {
    calls.run(c, rank, [&](Communicator& mine) {
      of_rank_0 = mine.statistics();
      return of_rank_0.late_ranks[late].calls >= wanted;
    });
  });
  INFO(name_of(over) << " " << algorithm);
  REQUIRE(of_rank_0.late_ranks.size() == size);
  // Rank 2 is missing whenever rank 1 is, so rank 1 is never the only one, unless its first frame
  // takes a longer way than that of rank 2, to open a connection.
  CHECK(of_rank_0.late_ranks[0].calls == 0);
  CHECK(of_rank_0.late_ranks[1].calls <= (over == Over::shm ? 0 : wanted / 10));
  CHECK(of_rank_0.late_ranks[late].waited >= wanted * lateness / 5);
  const auto ranks = of_rank_0.waited[static_cast<std::size_t>(WaitCause::ranks)];
  CHECK(ranks >= of_rank_0.late_ranks[late].waited);
  CHECK(of_rank_0.waited[static_cast<std::size_t>(WaitCause::gpu)].count() == 0);
  CHECK(of_rank_0.failures == 0);
}

TEST_CASE("in a ring the next rank counts the late one, and nobody counts ranks further away") {
  constexpr int size = 3, late = size - 1;
  std::vector<Statistics> seen(size);
  LateCalls calls(size);
  run_communicators(setup_of(Over::tcp, size, "ring"), "ring", [&](Communicator& c, int rank) {
    calls.run(c, rank,
              [&](Communicator& mine) { return mine.statistics().late_ranks[late].calls >= 20; });
    seen[static_cast<std::size_t>(rank)] = c.statistics();
  });
  CHECK(seen[0].late_ranks[1].calls == 0);  // rank 0 hears rank 2 only
  CHECK(seen[1].late_ranks[late].calls == 0);
  // Rank 0 has called, so what rank 1 lacks counts as transfer.
  const auto& waited = seen[1].waited;
  CHECK(4 * waited[static_cast<std::size_t>(WaitCause::transfer)] >
        waited[static_cast<std::size_t>(WaitCause::ranks)]);
}

// On the other host a broadcast's root waits for the late rank, and the rank beside it for the
// root.
TEST_CASE("in two levels the ranks of its host count the late one") {
  constexpr int size = 4, late = size - 1, beside = 1;
  const Collective operation = GENERATE(Collective::all_reduce, Collective::barrier,
                                        Collective::broadcast, Collective::reduce);
  Setup setup = setup_of(Over::mem, size, "two_level");
  setup.hosts = {0, 1, 0, 1};
  setup.faults.windows = true;
  std::vector<Statistics> seen(size);
  LateCalls calls(size, beside, operation);
  run_communicators(setup, "two levels", [&](Communicator& c, int rank) {
    calls.run(c, rank,
              [&](Communicator& mine) { return mine.statistics().late_ranks[late].calls >= 20; });
    seen[static_cast<std::size_t>(rank)] = c.statistics();
  });
  INFO(name_of(operation));
  CHECK(seen[0].late_ranks[late].calls == 0);
  CHECK(seen[2].late_ranks[late].calls == 0);
  CHECK(seen[0].late_ranks[beside].calls == 0);
  CHECK(seen[0].late_ranks[LateCalls::root].waited < seen[beside].late_ranks[late].waited / 2);
}

TEST_CASE("a rank that is late all the time is named once, by one rank") {
  const auto [over, algorithm] = GENERATE(std::pair(Over::shm, ""), std::pair(Over::tcp, "star"));
  constexpr int size = 3;
  const StandardError error;
  const std::string line = "has waited for rank 2 (host ";
  LateCalls calls(size);
  run_communicators(setup_of(over, size, algorithm), "late", [&](Communicator& c, int rank) {
    int more = 150;
    calls.run(c, rank, [&](Communicator&) { return times(error.text(), line) > 0 && --more == 0; });
  });
  INFO(error.text());
  CHECK(times(error.text(), line) == 1);
  CHECK(times(error.text(), "rondo warning: rank 0 has waited for rank 2") == 1);
  CHECK(times(error.text(), " collectives, ") == 1);
}

TEST_CASE("nobody is named when none is late, and failures count") {
  const Over over = GENERATE(Over::shm, Over::tcp);
  const StandardError error;
  std::barrier all_done(3);
  run_communicators(setup_of(over, 3, ""), "on time", [&](Communicator& c, int) {
    for (int call = 0; call < 500; ++call) {
      float value = 1;
      c.all_reduce({&value, 1, DType::f32}, {&value, 1, DType::f32}, ReduceOp::sum).wait();
    }
    all_done.arrive_and_wait();
    c.abort(Errc::aborted, "enough");
    float value = 1;
    const Work work = c.all_reduce({&value, 1, DType::f32}, {&value, 1, DType::f32}, ReduceOp::sum);
    try {
      work.wait();
      expect(false, "an aborted communicator goes on");
    } catch (const Error&) {
    }
    expect(c.statistics().failures == 1, "one operation has failed");
  });
  INFO(error.text());
  CHECK(times(error.text(), "has waited for rank") == 0);
}

}  // namespace rondo::testing

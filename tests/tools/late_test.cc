// SPDX-License-Identifier: Apache-2.0
#include "tools/late/arrivals.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "catch.h"
#include "support/ranks.h"

using rondo::Communicator;
using rondo::testing::expect;
using rondo::testing::run_communicators;
using rondo::testing::Setup;
using namespace rondo::tools;

namespace {

// Stamps of ranks, each a row of times of calls in microseconds. Every call ends 10 us after the
// last rank's.
std::vector<Stamp> stamps_of(const std::vector<std::vector<double>>& calls) {
  std::vector<Stamp> stamps;
  for (const auto& rank : calls)
    for (std::size_t i = 0; i < rank.size(); ++i) {
      double last = 0;
      for (const auto& other : calls) last = std::max(last, other[i]);
      stamps.push_back({1e3 * rank[i], 1e3 * (last + 10)});
    }
  return stamps;
}

}  // namespace

TEST_CASE("the rank that calls last most often is named, and by how much") {
  const auto stamps = stamps_of({{0, 100, 200, 300}, {1, 109, 201, 301}, {7, 102, 208, 309}});
  const Lateness late = judge(stamps, 3);
  CHECK(late.rank == 2);
  CHECK(late.share == Approx(0.75));
  // After the lower median of the other two: 7, 8 and 9 us.
  CHECK(late.late_us == Approx(8));
  CHECK(late.transfer_us == Approx(10));
  CHECK(late.last_share == std::vector<double>{0, 0.25, 0.75});
  // Ahead of the lower median of the others by 1 us, three times.
  CHECK(late.behind_us[0] == Approx(-2).margin(1));
  CHECK(late.behind_us[2] == Approx(7));
}

TEST_CASE("of two ranks each is compared with the other") {
  const Lateness late = judge(stamps_of({{5, 5}, {0, 0}}), 2);
  CHECK(late.rank == 0);
  CHECK(late.share == 1);
  CHECK(late.late_us == Approx(5));
  CHECK(late.behind_us == std::vector<double>{5, -5});
}

TEST_CASE("every rank keeps the stamps of the same iterations, and boundedly many") {
  using Clock = std::chrono::steady_clock;
  constexpr int iterations = 50'000;
  const auto begin = Clock::now();
  Setup setup;
  setup.size = 3;
  std::optional<Lateness> found;
  run_communicators(setup, "arrivals", [&](Communicator& communicator, int rank) {
    Clocks clocks(communicator);
    Arrivals arrivals(communicator.size());
    // Rank 1 is late by 5 ms in every iteration, and each is a millisecond after the one before.
    for (int i = 0; i < iterations; ++i) {
      const auto called =
          begin + std::chrono::milliseconds(i) + std::chrono::milliseconds(rank == 1 ? 5 : 0);
      arrivals.add(called, begin + std::chrono::milliseconds(i + 6));
    }
    const auto late = arrivals.judge(communicator, clocks);
    expect(late.has_value() == (rank == 0), "rank 0 alone judges");
    if (late) found = late;
  });
  REQUIRE(found);
  CHECK(found->rank == 1);
  CHECK(found->share == 1);
  CHECK(found->late_us == Approx(5000));
  CHECK(found->transfer_us == Approx(1000));
  CHECK(found->clock_error_us == 0);
}

TEST_CASE("clocks of other hosts are set against that of rank 0") {
  Setup setup;
  setup.size = 4;
  setup.hosts = {0, 1, 1, 2};
  run_communicators(setup, "clocks", [](Communicator& communicator, int rank) {
    Clocks clocks(communicator);
    clocks.mark();
    clocks.mark();
    if (rank != 0) return;
    // All are threads of this process, so the true difference is 0.
    const double now = steady_ns();
    for (int other = 0; other < communicator.size(); ++other)
      expect(std::abs(clocks.on_rank_0(other, now) - now) <= clocks.error_ns() + 1,
             "a clock is off by more than its bound");
    expect(clocks.error_ns() > 0, "a comparison without a bound");
  });
}

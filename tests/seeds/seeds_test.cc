// SPDX-License-Identifier: Apache-2.0
// Faults by seed. Whatever the network does, every rank soon ends with the right result, or with
// the same cause as the others. RONDO_TEST_ONLY=N plays only seed N.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "catch.h"
#include "seeds/scenario.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

constexpr std::uint64_t seeds = 2500;
constexpr int at_once = 4;  // the ranks of a seed mostly wait for each other
// A rank that hangs takes longer: the deadline of an operation, a minute.
constexpr std::chrono::seconds soon{30};

// Throws when something is wrong. Returns true when the faults made some call fail.
bool check_seed(std::uint64_t seed) {
  const Scenario scenario(seed);
  const base::TimePoint begin = base::Clock::now();
  const Endings endings = play(scenario);
  const std::string problem = judge(scenario, endings);
  expect(problem.empty(), problem + "\n" + scenario.describe());
  expect(base::Clock::now() - begin < soon, "took too long: " + scenario.describe());
  return std::any_of(endings.begin(), endings.end(), [](const auto& calls) {
    return std::any_of(calls.begin(), calls.end(),
                       [](const Ending& ending) { return static_cast<bool>(ending.code); });
  });
}

TEST_CASE("faults by seed") {
  if (const char* one = std::getenv("RONDO_TEST_ONLY")) {
    check_seed(std::strtoull(one, nullptr, 10));
    return;
  }
  std::atomic<std::uint64_t> next = 1, played = 0, failed = 0;
  CHECK_NOTHROW(run_ranks(
      at_once, "seeds",
      [&](int) {
        for (std::uint64_t seed = next++; seed <= seeds; seed = next++) {
          if (!drawn(seed)) continue;
          ++played;
          failed += check_seed(seed);
        }
      },
      std::chrono::seconds{500}));
  // Three quarters of the seeds have a cut or a flip, but not every run gets as far as that.
  CHECK(failed > played / 4);
}

}  // namespace
}  // namespace rondo::testing

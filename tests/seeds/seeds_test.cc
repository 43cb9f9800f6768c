// SPDX-License-Identifier: Apache-2.0
// Faults by seed: whatever the network does, every rank ends with the right result or with the same cause, and soon. RONDO_TEST_SEED=N
// plays one seed alone.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "catch.h"
#include "seeds/scenario.h"

namespace rondo::testing {
namespace {

constexpr std::uint64_t seeds = 1200;
constexpr int at_once = 4;  // seeds spend most of their time waiting for each other's threads
// A rank that hangs would take the deadline of an operation, a minute.
constexpr std::chrono::seconds soon{30};

// Throws what is wrong.
void check_seed(std::uint64_t seed) {
  const Scenario scenario(seed);
  const TimePoint begin = Clock::now();
  const std::string problem = judge(scenario, play(scenario));
  expect(problem.empty(), problem + "\n" + scenario.describe());
  expect(Clock::now() - begin < soon, "took too long: " + scenario.describe());
}

TEST_CASE("faults by seed") {
  if (const char* one = std::getenv("RONDO_TEST_SEED")) return check_seed(std::strtoull(one, nullptr, 10));
  const std::uint64_t last = seeds * static_cast<std::uint64_t>(effort()) / 100;
  std::atomic<std::uint64_t> next = 1;
  CHECK_NOTHROW(run_ranks(
      at_once, "seeds",
      [&](int) {
        for (std::uint64_t seed = next++; seed <= last; seed = next++) check_seed(seed);
      },
      std::chrono::seconds{500}));
}

}  // namespace
}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
// Faults by seed: whatever the network does, every rank ends with the right result or with the same
// cause, and soon. RONDO_TEST_SEED=N plays one seed alone.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "catch.h"
#include "seeds/scenario.h"

namespace rondo::testing {
namespace {

constexpr std::uint64_t seeds = 2500;
constexpr int at_once = 4;  // seeds spend most of their time waiting for each other's threads
// A rank that hangs would take the deadline of an operation, a minute.
constexpr std::chrono::seconds soon{30};

// Throws what is wrong. True when the faults made some call fail.
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
  if (const char* one = std::getenv("RONDO_TEST_SEED")) {
    check_seed(std::strtoull(one, nullptr, 10));
    return;
  }
  const std::uint64_t last = seeds * static_cast<std::uint64_t>(effort()) / 100;
  std::atomic<std::uint64_t> next = 1, failed = 0;
  CHECK_NOTHROW(run_ranks(
      at_once, "seeds",
      [&](int) {
        for (std::uint64_t seed = next++; seed <= last; seed = next++) failed += check_seed(seed);
      },
      std::chrono::seconds{500}));
  CHECK(
      failed >
      last /
          4);  // three quarters have a fault that loses or changes something, if it lies in the way
}

}  // namespace
}  // namespace rondo::testing

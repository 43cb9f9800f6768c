// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/waiting.h"

#include "catch.h"

using namespace rondo;
using engine::Waiting;
using engine::WaitMode;
using Next = Waiting::Next;
using Company = Waiting::Company;

namespace {

constexpr microseconds wake{20};

// A wait that asks again and again: `passes` of them, one microsecond apart.
Next after(Waiting& waiting, base::TimePoint& now, int passes, Company company) {
  Next next = Next::spin;
  for (int i = 0; i < passes; ++i) next = waiting.next(now += microseconds{1}, company);
  return next;
}

// A wait whose only yield takes this long.
Next yield_once(Waiting& waiting, base::TimePoint& now, nanoseconds time) {
  waiting.moved();
  const Next next = waiting.next(now, Company::awaited);
  if (next == Next::yield) waiting.yielded(time);
  now += time;
  return next;
}

}  // namespace

TEST_CASE("a rank with a core of its own spins for three wake-ups, and sleeps in the end",
          "[waiting]") {
  Waiting waiting(WaitMode::automatic, wake, 1);
  base::TimePoint now{};
  CHECK(after(waiting, now, 60, Company::none) == Next::spin);
  CHECK(after(waiting, now, 10, Company::none) != Next::spin);
  CHECK(after(waiting, now, 1000, Company::none) == Next::sleep);
  waiting.moved();
  CHECK(after(waiting, now, 1, Company::none) == Next::spin);
}

TEST_CASE("a rank that shares its core yields at once, and sleeps in the end", "[waiting]") {
  Waiting waiting(WaitMode::automatic, wake, 1);
  base::TimePoint now{};
  CHECK(after(waiting, now, 1, Company::awaited) == Next::yield);
  CHECK(after(waiting, now, 990, Company::awaited) == Next::yield);
  CHECK(after(waiting, now, 20, Company::awaited) == Next::sleep);
}

TEST_CASE("a rank whose neighbours on its core wait too looks for 2 us before it yields",
          "[waiting]") {
  Waiting waiting(WaitMode::automatic, wake, 1);
  base::TimePoint now{};
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(after(waiting, now, 20, Company::awaited) == Next::yield);
    CHECK(after(waiting, now, 2, Company::waiting) == Next::look);
    CHECK(after(waiting, now, 1, Company::waiting) == Next::yield);
  }
  waiting.moved();
  CHECK(after(waiting, now, 1, Company::waiting) == Next::look);
  CHECK(after(waiting, now, 990, Company::waiting) == Next::yield);
  CHECK(after(waiting, now, 20, Company::waiting) == Next::sleep);
}

TEST_CASE("one long yield changes nothing, many of them end in sleeps", "[waiting]") {
  Waiting waiting(WaitMode::automatic, wake, 1);
  base::TimePoint now{};
  CHECK(yield_once(waiting, now, milliseconds{4}) == Next::yield);
  // The time of the long yield does not count as waiting.
  CHECK(after(waiting, now, 10, Company::awaited) == Next::yield);
  CHECK(yield_once(waiting, now, milliseconds{4}) == Next::yield);
  CHECK(yield_once(waiting, now, milliseconds{4}) == Next::sleep);

  // Each later wait pays off one wake-up: yields are tried again when less than 5 ms are left.
  int sleeps = 1;
  while (yield_once(waiting, now, microseconds{2}) == Next::sleep) ++sleeps;
  CHECK(sleeps == 148);
  CHECK(yield_once(waiting, now, microseconds{2}) == Next::yield);
}

TEST_CASE("short yields cost nothing, however many they are", "[waiting]") {
  Waiting waiting(WaitMode::automatic, wake, 1);
  base::TimePoint now{};
  for (int i = 0; i < 1000; ++i)
    REQUIRE(yield_once(waiting, now, microseconds{100}) == Next::yield);
}

TEST_CASE("where many ranks share a core, waits and yields may take as long as their turns",
          "[waiting]") {
  Waiting waiting(WaitMode::automatic, wake, 32);
  base::TimePoint now{};
  CHECK(after(waiting, now, 15'900, Company::awaited) == Next::yield);
  CHECK(after(waiting, now, 200, Company::awaited) == Next::sleep);
  for (int i = 0; i < 100; ++i)
    REQUIRE(yield_once(waiting, now, microseconds{7'900}) == Next::yield);
  yield_once(waiting, now, microseconds{8'100});
  CHECK(yield_once(waiting, now, microseconds{10}) == Next::sleep);
}

TEST_CASE("RONDO_WAIT=spin never sleeps, RONDO_WAIT=sleep always does", "[waiting]") {
  base::TimePoint now{};
  Waiting spins(WaitMode::spin, wake, 1);
  CHECK(after(spins, now, 100'000, Company::none) == Next::spin);
  CHECK(after(spins, now, 1, Company::awaited) == Next::yield);
  Waiting sleeps(WaitMode::sleep, wake, 1);
  CHECK(after(sleeps, now, 1, Company::none) == Next::sleep);
  CHECK(after(sleeps, now, 1, Company::awaited) == Next::sleep);
}

TEST_CASE("the time of a wake-up is measured once, and is sane", "[waiting]") {
  const nanoseconds time = engine::wake_time();
  CHECK(time >= microseconds{5});
  CHECK(time <= microseconds{60});
  CHECK(engine::wake_time() == time);
}

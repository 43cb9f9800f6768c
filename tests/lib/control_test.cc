// SPDX-License-Identifier: Apache-2.0
//
// The control plane when nothing breaks: causes that ranks report, leaving, closing, idling.
#include "lib/control/control.h"

#include <time.h>

#include "catch.h"
#include "lib/control/thread.h"
#include "parties.h"

using namespace rondo;
using namespace rondo::tests;

namespace {

constexpr std::uint64_t none[lane_count] = {};

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

TEST_CASE("the first cause reaches every rank once", "[control]") {
  const int size = GENERATE(2, 3, 8);
  for (const int reporter : {0, 1, size - 1}) {
    auto ranks = parties(size);
    const base::TimePoint start = base::Clock::now();
    ranks[static_cast<std::size_t>(reporter)].control->report(
        {Errc::mismatch, "rank 1 called barrier", -1, {1}, 17, "tcp here"});
    for (const Party& party : ranks) {
      const operation::Failure failure = party.wait_for_failure();
      CHECK(failure.code == Errc::mismatch);
      CHECK(failure.cause == "rank 1 called barrier");
      CHECK(failure.culprits == std::vector<int>{1});
      CHECK(failure.seen_by == reporter);
      CHECK(failure.link == "tcp here");
    }
    control::Heard heard;
    if (reporter != 0) heard = {{reporter, "rank 1 called barrier"}};
    CHECK(ranks[0].listener->heard() == heard);
    CHECK(seconds_since(start) < 5);
  }
}

TEST_CASE("of several causes one wins on all ranks", "[control]") {
  auto ranks = parties(4);
  std::vector<std::future<void>> reports;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    reports.push_back(std::async(std::launch::async, [&, rank] {
      for (int i = 0; i < 10; ++i)
        ranks[rank].control->report(
            {Errc::peer_lost, "cause " + std::to_string(i) + " of rank " + std::to_string(rank)});
    }));
  const std::string cause = ranks.front().wait_for_failure().cause;
  CHECK_THAT(cause, Catch::StartsWith("cause 0 of rank "));
  for (const Party& party : ranks) CHECK(party.wait_for_failure().cause == cause);
  for (auto& report : reports) report.get();
  for (Party& party : ranks) party.control.reset();
  for (const Party& party : ranks) CHECK(party.listener->failures() == 1);
}

TEST_CASE("what happens before start() is kept", "[control]") {
  auto ranks = parties(3, false);
  ranks[1].control->report({Errc::aborted, "early"});
  ranks[0].control->start(*ranks[0].listener);
  CHECK(ranks[0].wait_for_failure().cause == "early");
  for (std::size_t rank : {1u, 2u}) {
    ranks[rank].control->start(*ranks[rank].listener);
    CHECK(ranks[rank].wait_for_failure().cause == "early");
  }
}

TEST_CASE("ranks that leave in order do no harm", "[control]") {
  auto ranks = parties(4);
  const std::uint64_t finished[lane_count] = {7, 2};
  const base::TimePoint until = base::after(base::Clock::now(), milliseconds{20'000});
  SECTION("one after the other, rank 0 last") {
    for (std::size_t rank = 3; rank > 0; --rank) {
      ranks[rank].control->leave(finished, until);
      ranks[rank].control.reset();
      for (std::size_t other = 0; other < rank; ++other)
        CHECK(ranks[other].listener->wait_for_left(static_cast<int>(rank)));
      // The end of its connection is no loss, also when a loss would have been told.
      if (rank == 3)
        wire::pause_until(base::after(base::Clock::now(), 2 * control::last_words_time));
    }
    ranks[0].control->leave(finished, until);
    CHECK(ranks[0].listener->left() == std::map<int, std::uint64_t>{{1, 7}, {2, 7}, {3, 7}});
  }
  SECTION("all at once") {
    std::vector<std::future<void>> leaving;
    for (Party& party : ranks)
      leaving.push_back(std::async(std::launch::async, [&] {
        party.control->leave(finished, until);
        party.control.reset();
      }));
    for (auto& one : leaving) one.get();
  }
  for (Party& party : ranks) party.control.reset();
  for (const Party& party : ranks) CHECK(party.listener->failures() == 0);
  CHECK(base::Clock::now() < until);
}

TEST_CASE("rank 0 goes first when the others have finished as much", "[control]") {
  auto ranks = parties(3);
  const std::uint64_t finished[lane_count] = {7, 0};
  for (std::size_t rank : {1u, 2u}) ranks[rank].listener->set_status(standing(8, 7));
  const base::TimePoint start = base::Clock::now();
  ranks[0].control->leave(finished, base::after(start, milliseconds{20'000}));
  CHECK(seconds_since(start) < 10);
  ranks[0].control.reset();
  for (std::size_t rank : {1u, 2u}) {
    CHECK(ranks[rank].listener->wait_for_left(0));
    // Without a hub each rank's own report is its cause, at once.
    ranks[rank].control->report({Errc::peer_left, "rank 0 left"});
    CHECK(ranks[rank].wait_for_failure().cause == "rank 0 left");
    ranks[rank].control->leave(finished, base::after(base::Clock::now(), milliseconds{20'000}));
  }
  CHECK(seconds_since(start) < 15);
}

TEST_CASE("a second client gets all that came before it", "[control]") {
  Listener late;
  auto ranks = parties(3);
  const std::uint64_t finished[lane_count] = {3, 0};
  ranks[2].control->leave(finished, base::after(base::Clock::now(), milliseconds{20'000}));
  REQUIRE(ranks[1].listener->wait_for_left(2));
  ranks[0].control->report({Errc::corrupt, "a cause"});
  REQUIRE(ranks[1].wait_for_failure().cause == "a cause");
  ranks[1].control->start(late);
  CHECK(late.wait_for_failure().cause == "a cause");
  CHECK(late.left() == std::map<int, std::uint64_t>{{2, 3}});
  ranks.clear();  // before its client
}

TEST_CASE("rank 0 stays for those who are behind, until its time is up", "[control]") {
  auto ranks = parties(3);
  const std::uint64_t finished[lane_count] = {7, 0};
  ranks[1].listener->set_status(standing(7, 7));
  ranks[2].listener->set_status(standing(7, 6));
  const base::TimePoint start = base::Clock::now();
  ranks[0].control->leave(finished, base::after(start, milliseconds{300}));
  CHECK(seconds_since(start) >= 0.3);
  CHECK(seconds_since(start) < 10);

  auto catching_up = parties(2);
  catching_up[1].listener->set_status(standing(7, 6));
  auto leaving = std::async(std::launch::async, [&] {
    catching_up[0].control->leave(finished, base::after(base::Clock::now(), milliseconds{20'000}));
  });
  CHECK(catching_up[1].listener->wait_for_left(0));
  catching_up[1].listener->set_status(standing(7, 7));
  CHECK(leaving.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

TEST_CASE("a failure while rank 0 lingers still reaches all", "[control]") {
  auto ranks = parties(3);
  const std::uint64_t finished[lane_count] = {7, 0};
  auto leaving = std::async(std::launch::async, [&] {
    ranks[0].control->leave(finished, base::after(base::Clock::now(), milliseconds{20'000}));
  });
  CHECK(ranks[2].listener->wait_for_left(0));
  ranks[1].control->report({Errc::mismatch, "late"});
  CHECK(ranks[2].wait_for_failure().cause == "late");
  CHECK(ranks[1].wait_for_failure().cause == "late");
  CHECK(leaving.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

TEST_CASE("after the end everything may still be called", "[control]") {
  auto ranks = parties(2);
  const base::TimePoint until = base::after(base::Clock::now(), milliseconds{20'000});
  ranks[1].control->leave(none, until);
  CHECK(ranks[0].listener->wait_for_left(1));
  ranks[0].control->leave(none, until);
  for (Party& party : ranks) {
    party.control->report({Errc::aborted, "too late"});
    party.control->report_deadline(Priority::bulk, 1, milliseconds{5}, "second");
    party.control->report_stall(Priority::bulk, 1);
    party.control->leave(none, base::after(base::Clock::now(), milliseconds{50}));
  }
  CHECK(base::Clock::now() < until);
  // A report after the end fails the rank that reports it, once, and no other rank.
  for (const Party& party : ranks) {
    CHECK(party.wait_for_failure().cause == "too late");
    CHECK(party.listener->failures() == 1);
  }
  CHECK(ranks[0].listener->left().size() == 1);
}

TEST_CASE("an idle control plane takes no processor time", "[control]") {
  auto ranks = parties(8);
  for (Party& party : ranks) CHECK(party.listener->failures() == 0);
  const double before = cpu_seconds();
  wire::pause_until(base::after(base::Clock::now(), milliseconds{300}));
  CHECK(cpu_seconds() - before < 0.02);
}

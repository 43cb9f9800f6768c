// SPDX-License-Identifier: Apache-2.0
//
// Every fault ends on every surviving rank in an error that names operation, ranks and cause. The
// cause is the same on all of them.
#include <signal.h>

#include <memory>
#include <random>

#include "group.h"

using namespace rondo;

namespace {

constexpr int forever = 1'000'000;
constexpr std::size_t large = 1 << 18, small = 1000;

void pause_for(milliseconds time) {
  Process sleeper({"/bin/sleep", std::to_string(std::chrono::duration<double>(time).count())}, {});
  sleeper.wait(base::Clock::now() + time + std::chrono::seconds{5});
}

void check_same_cause(Group& group, const std::vector<int>& ranks, const std::string& code,
                      const std::vector<std::string>& parts) {
  std::string first;
  for (const int rank : ranks) {
    const Ending ending = group.ending(rank);
    INFO("rank " << rank << ": " << ending.code << " " << ending.message);
    REQUIRE(ending.answered);
    CHECK(ending.code == code);
    for (const std::string& part : parts) CHECK(contains(ending.message, part));
    if (first.empty()) first = cause_of(ending.message);
    CHECK(cause_of(ending.message) == first);
  }
}

}  // namespace

TEST_CASE("nothing goes wrong when nothing goes wrong") {
  const std::string transport = GENERATE(as<std::string>{}, "tcp", "shm");
  INFO(transport);
  Group group(4);
  group.transport = transport;
  group.start_all({"run", "run", "run", "run"}, 20, 0, small);
  for (int rank = 0; rank < 4; ++rank) CHECK(group.ending(rank).code == "ok");
}

TEST_CASE("a rank that is killed at a random moment is named on every other rank within a second") {
  const std::string transport = GENERATE(as<std::string>{}, "tcp", "shm");
  INFO(transport);
  std::mt19937_64 random(seed_of_moments());
  for (const int victim : drawn_of({0, 1, 3})) {
    Group group(4);
    group.transport = transport;
    group.start_all({"run", "run", "run", "run"}, forever, 0, victim == 1 ? small : large);
    const milliseconds moment{random() % 300};
    INFO("seed " << seed_of_moments() << ", rank " << victim << " killed after " << moment.count()
                 << " ms");
    pause_for(moment);
    group[victim].signal(SIGKILL);
    const base::TimePoint killed = base::Clock::now();
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const Ending ending = group.ending(rank);
      INFO("rank " << rank << ": " << ending.message);
      CHECK(ending.code == "peer_lost");
      CHECK(contains(ending.message, "all_reduce #"));
      CHECK(contains(ending.message, "lost rank " + std::to_string(victim)));
    }
    CHECK(base::Clock::now() - killed <
          std::chrono::seconds{5});  // one second, and four for a busy machine
  }
}

TEST_CASE("a rank that is stopped trips the deadline, which names it") {
  struct Case {
    int victim;
    std::unique_ptr<Group> group;
  };
  std::mt19937_64 random(seed_of_moments());
  std::vector<Case> cases;  // at the same time, because each waits for its deadline
  for (const std::string transport : {"tcp", "shm"})
    for (const int victim : drawn_of({2, 0})) {
      Group& group = *cases.emplace_back(Case{victim, std::make_unique<Group>(3, "1.5")}).group;
      group.transport = transport;
      group.start_all({"run", "run", "run"}, forever, 0, large);
      pause_for(milliseconds{random() % 200});
      group[victim].signal(SIGSTOP);
    }
  for (const auto& [victim, group] : cases) {
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const Ending ending = group->ending(rank);
      INFO("seed " << seed_of_moments() << ", " << group->transport << ", rank " << rank << ": "
                   << ending.code << " " << ending.message);
      CHECK((ending.code == "deadline_exceeded" || ending.code == "peer_lost"));
      CHECK(contains(ending.message, "rank " + std::to_string(victim)));
      CHECK(contains(ending.message, "all_reduce #"));
    }
    (*group)[victim].signal(SIGKILL);
  }
}

TEST_CASE("a rank that is killed or stopped while messages go round is named on every other rank") {
  const std::string transport = GENERATE(as<std::string>{}, "tcp", "shm");
  const bool kill = GENERATE(true, false);
  const std::size_t count = GENERATE(from_range(drawn_of({small, large})));
  INFO(transport << ", " << count);
  Group group(4, kill ? "20" : "1");
  group.transport = transport;
  group.start_all({"messages", "messages", "messages", "messages"}, forever, 0, count);
  pause_for(milliseconds{100});
  group[2].signal(kill ? SIGKILL : SIGSTOP);
  if (kill)
    check_same_cause(group, {0, 1, 3}, "peer_lost", {"batch #", "lost rank 2"});
  else
    check_same_cause(
        group, {0, 1, 3}, "deadline_exceeded",
        {"batch #", "rank 2 does not answer", "the deadline of 1 s of messages between two ranks"});
  if (!kill) group[2].signal(SIGKILL);
}

TEST_CASE("a rank that is killed while another receives from any rank is named on every other") {
  const std::string transport = GENERATE(as<std::string>{}, "tcp", "shm");
  const std::size_t count = GENERATE(from_range(drawn_of({small, large})));
  INFO(transport << ", " << count);
  Group group(4);
  group.transport = transport;
  group.start_all({"any", "any", "any", "any"}, forever, 0, count);
  pause_for(milliseconds{100});
  const base::TimePoint killed = base::Clock::now();
  group[2].signal(SIGKILL);
  check_same_cause(group, {0, 1, 3}, "peer_lost", {"lost rank 2"});
  CHECK(base::Clock::now() - killed < std::chrono::seconds{5});
}

TEST_CASE("a rank that never calls is named with the last operation it finished") {
  Group group(4, "1");
  group.start_all({"run", "run", "never", "run"}, forever, 5, small);
  check_same_cause(group, {0, 1, 3}, "deadline_exceeded", {"all_reduce #6", "rank 2", "#5"});
}

TEST_CASE("a rank that leaves is named at once") {
  const std::string transport = GENERATE(as<std::string>{}, "tcp", "shm");
  INFO(transport);
  Group group(3);
  group.transport = transport;
  group.start_all({"run", "leave", "run"}, forever, 5, small);
  for (const int rank : {0, 2}) {
    const Ending ending = group.ending(rank);
    INFO("rank " << rank << ": " << ending.code << " " << ending.message);
    CHECK(ending.code == "peer_left");
    CHECK(contains(ending.message, "rank 1"));
  }
}

TEST_CASE("abort on one rank ends the others with its reason") {
  const std::string transport = GENERATE(as<std::string>{}, "tcp", "shm");
  INFO(transport);
  Group group(3);
  group.transport = transport;
  group.start_all({"run", "run", "abort"}, forever, 3, large);
  check_same_cause(group, {0, 1, 2}, "aborted", {"rank 2 called abort"});
}

TEST_CASE("ranks that call different things get a mismatch that names both calls") {
  const std::string mode = GENERATE(as<std::string>{}, "count", "type", "op", "operation");
  const std::size_t count = GENERATE(from_range(drawn_of({small, large})));
  INFO(mode << " with " << count);
  Group group(4);
  group.start_all({"run", "run", "run", mode}, forever, 2, count);
  check_same_cause(group, {0, 1, 2, 3}, "mismatch", {"rank 3 ", "#3", "all_reduce"});
}

TEST_CASE("ranks that name different roots get a mismatch") {
  const std::size_t count = GENERATE(from_range(drawn_of({small, large})));
  Group group(4);
  group.start_all({"expect-root", "root", "expect-root", "expect-root"}, forever, 2, count);
  check_same_cause(group, {0, 1, 2, 3}, "mismatch", {"broadcast #3", "root 0", "root 1"});
}

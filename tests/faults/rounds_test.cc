// SPDX-License-Identifier: Apache-2.0
//
// In each round one of 2 to 8 ranks has a fault. No rank may hang, every other rank must name the
// victim, and all must name the same cause. RONDO_TEST_ROUNDS is the number of rounds. 15 rounds
// have each fault over each transport.
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "group.h"

using namespace rondo;

namespace {

struct Fault {
  const char* name;   // and the mode of the victim, where signal is 0
  int signal;         // or 0
  const char* code;   // of the error on the other ranks
  const char* cause;  // text of that error; N is the victim
};

constexpr Fault faults[] = {
    {"kill", SIGKILL, "peer_lost", "lost rank N at "},
    {"stop", SIGSTOP, "deadline_exceeded",
     "rank N does not answer (stopped, unreachable, or behind a full link)"},
    {"leave", 0, "peer_left", "rank N has left: "},
    {"abort", 0, "aborted", "rank N called abort: "},
    {"throw", 0, "peer_left", "rank N has left: "},
};

constexpr const char* transports[] = {"tcp", "shm", "tcp,shm"};

int rounds() {
  const char* const wish = std::getenv("RONDO_TEST_ROUNDS");
  return wish != nullptr ? std::atoi(wish) : 15;
}

std::string with_rank(std::string text, int rank) {
  const auto at = text.find('N');
  return at == std::string::npos ? text : text.replace(at, 1, std::to_string(rank));
}

// A job in which one rank has a fault. The constructor starts the job and lets the fault happen.
class Round {
 public:
  Round(int round, std::mt19937_64& random)
      : fault_(faults[static_cast<std::size_t>(round) / std::size(transports) % std::size(faults)]),
        size_(2 + static_cast<int>(random() % 7)),
        victim_(static_cast<int>(random() % static_cast<unsigned>(size_))),
        group_(size_, fault_.signal == SIGSTOP ? "4" : "20") {
    const std::size_t count = random() % 2 == 0 ? 1000 : std::size_t{1} << 18;
    const int at = static_cast<int>(random() % 30);
    const milliseconds moment{random() % 100};
    group_.transport = transports[static_cast<std::size_t>(round) % std::size(transports)];
    name_ = "round " + std::to_string(round) + ": " + fault_.name + " of rank " +
            std::to_string(victim_) + " of " + std::to_string(size_) + " over " + group_.transport +
            ", " + std::to_string(count) + " f32, operation " + std::to_string(at) + ", " +
            std::to_string(moment.count()) + " ms";
    INFO(name_);
    std::vector<std::string> modes(static_cast<std::size_t>(size_), "run");
    if (fault_.signal == 0) modes[static_cast<std::size_t>(victim_)] = fault_.name;
    group_.start_all(modes, 1'000'000, at, count);
    if (fault_.signal == 0) return;
    // The signal comes at a random moment; the test waits for no event before it.
    Process clock({"/bin/sleep", std::to_string(std::chrono::duration<double>(moment).count())},
                  {});
    clock.wait(base::Clock::now() + std::chrono::seconds{20});
    group_[victim_].signal(fault_.signal);
  }

  void check() {
    INFO(name_);
    std::string first;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == victim_) continue;
      const Ending ending = group_.ending(rank, base::Clock::now() + std::chrono::seconds{60});
      INFO("rank " << rank << ": " << ending.code << " " << ending.message);
      REQUIRE(ending.answered);
      CHECK(ending.code == fault_.code);
      CHECK(contains(ending.message, with_rank(fault_.cause, victim_)));
      if (first.empty()) first = cause_of(ending.message);
      CHECK(cause_of(ending.message) == first);
    }
    if (fault_.signal == SIGSTOP) group_[victim_].signal(SIGKILL);
    const std::string trace = group_.trace();
    INFO(trace);
    CHECK(contains(trace, with_rank(fault_.cause, victim_)));
    CHECK(contains(trace, fault_.code + with_rank(", caused by rank N", victim_)));
    if (fault_.signal == SIGKILL && victim_ != 0) CHECK(contains(trace, ", as rank 0 heard: "));
  }

 private:
  const Fault& fault_;
  const int size_, victim_;
  Group group_;
  std::string name_;
};

}  // namespace

TEST_CASE("rounds of kill, stop, leave, abort and exceptions") {
  std::mt19937_64 random(seed_of_moments());
  INFO("RONDO_TEST_SEED=" << seed_of_moments());
  for (int round = 0; round < rounds();) {
    // Runs the same fault over all transports at the same time, because some wait for a deadline.
    std::vector<std::unique_ptr<Round>> together;
    for (std::size_t i = 0; i < std::size(transports) && round < rounds(); ++i)
      together.push_back(std::make_unique<Round>(round++, random));
    for (const auto& one : together) one->check();
  }
}

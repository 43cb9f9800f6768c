// SPDX-License-Identifier: Apache-2.0
//
// In each round one of 2 to 8 ranks has a fault. No rank may hang, every other rank must name the
// victim, and all must name the same cause. RONDO_TEST_ROUNDS is the number of rounds; 200 take a
// quarter of an hour on two cores.
#include <signal.h>

#include <cstdlib>
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
    {"stop", SIGSTOP, "deadline_exceeded", "rank N does not answer (stopped or unreachable)"},
    {"leave", 0, "peer_left", "rank N has left: "},
    {"abort", 0, "aborted", "rank N called abort: "},
    {"throw", 0, "peer_left", "rank N has left: "},
};

int rounds() {
  const char* const wish = std::getenv("RONDO_TEST_ROUNDS");
  return wish != nullptr ? std::atoi(wish) : 15;
}

std::string with_rank(std::string text, int rank) {
  const auto at = text.find('N');
  return at == std::string::npos ? text : text.replace(at, 1, std::to_string(rank));
}

void play(int round, std::mt19937_64& random) {
  const Fault& fault = faults[static_cast<std::size_t>(round) % std::size(faults)];
  const int size = 2 + static_cast<int>(random() % 7);
  const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
  const std::string transports[] = {"tcp", "shm", "tcp,shm"};
  const std::size_t count = random() % 2 == 0 ? 1000 : std::size_t{1} << 18;
  const int at = static_cast<int>(random() % 30);
  const milliseconds moment{random() % 100};
  Group group(size, fault.signal == SIGSTOP ? "4" : "20");
  group.transport = transports[static_cast<std::size_t>(round) / std::size(faults) % 3];
  INFO("round " << round << ": " << fault.name << " of rank " << victim << " of " << size
                << " over " << group.transport << ", " << count << " f32, operation " << at << ", "
                << moment.count() << " ms");
  std::vector<std::string> modes(static_cast<std::size_t>(size), "run");
  if (fault.signal == 0) modes[static_cast<std::size_t>(victim)] = fault.name;
  group.start_all(modes, 1'000'000, at, count);
  if (fault.signal != 0) {
    // The signal comes at a random moment; the test waits for no event before it.
    const Process clock(
        {"/bin/sleep", std::to_string(std::chrono::duration<double>(moment).count())}, {});
    const_cast<Process&>(clock).wait(base::Clock::now() + std::chrono::seconds{20});
    group[victim].signal(fault.signal);
  }
  std::string first;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    const Ending ending = group.ending(rank, base::Clock::now() + std::chrono::seconds{60});
    INFO("rank " << rank << ": " << ending.code << " " << ending.message);
    REQUIRE(ending.answered);
    CHECK(ending.code == fault.code);
    CHECK(contains(ending.message, with_rank(fault.cause, victim)));
    if (first.empty()) first = cause_of(ending.message);
    CHECK(cause_of(ending.message) == first);
  }
  if (fault.signal == SIGSTOP) group[victim].signal(SIGKILL);
}

}  // namespace

TEST_CASE("rounds of kill, stop, leave, abort and exceptions") {
  const char* const wish = std::getenv("RONDO_TEST_SEED");
  const std::uint64_t seed =
      wish != nullptr ? std::strtoull(wish, nullptr, 10) : std::random_device{}();
  std::mt19937_64 random(seed);
  INFO("RONDO_TEST_SEED=" << seed);
  for (int round = 0; round < rounds(); ++round) play(round, random);
}

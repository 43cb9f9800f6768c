// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes that share GPU 0, each with its own driver.
#include <csignal>
#include <iterator>
#include <string_view>

#include "faults/group.h"

namespace rondo {
namespace {

std::string transport_of(int turn) {
  return turn % 2 == 0 ? "tcp" : "shm";
}

TEST_CASE("processes that share a GPU") {
  int turn = 0;
  for (const int size : {1, 2, 4, 8}) {
    Group group(size, "60");
    group.transport = transport_of(++turn);
    INFO(size << " ranks over " << group.transport);
    group.start_all(std::vector<std::string>(static_cast<std::size_t>(size), "run"), 22, 0, 5000);
    for (int rank = 0; rank < size; ++rank) CHECK(group.ending(rank).code == "ok");
    for (int rank = 0; rank < size; ++rank)
      CHECK(group[rank].wait(base::Clock::now() + Group::patience) == 0);
  }
}

TEST_CASE("processes reach each other's memory of a GPU") {
  for (const char* const mode : {"direct", "slots", "registered", "inside"})
    for (const int size : {2, 4}) {
      if (mode == std::string_view("inside") && size == 2) continue;
      Group group(size, "60");
      group.transport = "shm";
      group.start_all(std::vector<std::string>(static_cast<std::size_t>(size), mode), 66, 0, 9000);
      for (int rank = 0; rank < size; ++rank) {
        const Ending ending = group.ending(rank);
        INFO(mode << ", rank " << rank << ": " << ending.code << " " << ending.message);
        CHECK(ending.code == "ok");
      }
      for (int rank = 0; rank < size; ++rank)
        CHECK(group[rank].wait(base::Clock::now() + Group::patience) == 0);
    }
}

TEST_CASE("a rank is killed in the middle, and the GPU is usable for the others") {
  constexpr const char* modes[] = {"run",        "run",        "run",    "run",
                                   "direct",     "direct",     "slots",  "slots",
                                   "registered", "registered", "inside", "inside"};
  for (int turn = 0; turn < static_cast<int>(std::size(modes)); ++turn) {
    const bool inside = modes[turn] == std::string_view("inside");
    const int size = inside ? 4 : 2 + turn % 3, victim = turn % size;
    Group group(size, "60");
    group.transport = turn < 4 ? transport_of(turn) : "shm";
    group.start_all(std::vector<std::string>(static_cast<std::size_t>(size), modes[turn]), 0, 0,
                    200'000);
    // So many milliseconds into the operations.
    CHECK(
        group[victim].line(base::Clock::now() + std::chrono::milliseconds{40 + 30 * turn}).empty());
    group[victim].signal(SIGKILL);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      const Ending ending = group.ending(rank);
      INFO("rank " << rank << ": " << ending.code << " " << ending.message);
      CHECK(ending.message.find("lost rank " + std::to_string(victim)) != std::string::npos);
      CHECK(group[rank].wait(base::Clock::now() + Group::patience) == 0);
    }
  }
}

}  // namespace
}  // namespace rondo

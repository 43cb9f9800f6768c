// SPDX-License-Identifier: Apache-2.0
// When a rank leaves while the others go on, every rank reports in the same words that it has left.
// No rank reports it as lost, although its connections end in resets. RONDO_TEST_ROUNDS is the
// number of rounds over each transport; 1,000 take some minutes.
#include <rondo/error.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "support/draw.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

constexpr int size = 4;

int rounds() {
  const char* const wish = std::getenv("RONDO_TEST_ROUNDS");
  return wish != nullptr ? std::atoi(wish) : 12;
}

// Returns the cause that this rank reads in the error of its operation; empty where it left. The
// memory outlives the communicator, because some ranks leave with operations in flight.
std::string run_until_failure(Communicator& c, bool leaves, int operations, std::vector<float>& in,
                              std::vector<float>& out) {
  const std::size_t count = in.size();
  std::vector<Work> works(3);
  for (int i = 0; !leaves || i < operations; ++i) {
    Work& work = works[static_cast<std::size_t>(i) % works.size()];
    try {
      work.wait();
      work = c.all_reduce({in.data(), count, DType::f32}, {out.data(), count, DType::f32},
                          ReduceOp::sum);
    } catch (const Error& error) {
      expect(!leaves, std::string("the rank that leaves fails: ") + error.what());
      expect(error.code() == Errc::peer_left, error.what());
      const std::string text = error.what();
      return text.substr(text.find("): ") + 3);
    }
  }
  if (operations % 2 == 0)  // otherwise the rank leaves with operations in flight
    for (Work& work : works) work.wait();
  return {};
}

}  // namespace

TEST_CASE("a rank that leaves during operations has left, for all in the same words") {
  Setup setup;
  setup.over = GENERATE(Over::tcp, Over::shm);
  setup.size = size;
  Draw draw(4711);
  for (int round = 0; round < rounds(); ++round) {
    const int leaver = static_cast<int>(draw(size)), operations = static_cast<int>(draw(20));
    const std::size_t count = draw(2) == 0 ? 1000 : 200'000;
    std::vector<std::vector<float>> in(size, std::vector<float>(count, 1)), out = in;
    std::mutex mutex;
    std::set<std::string> causes;
    run_communicators(setup, "round " + std::to_string(round), [&](Communicator& c, int rank) {
      const std::string cause =
          run_until_failure(c, rank == leaver, operations, in[static_cast<std::size_t>(rank)],
                            out[static_cast<std::size_t>(rank)]);
      const std::lock_guard lock(mutex);
      if (rank != leaver) causes.insert(cause);
    });
    INFO(name_of(setup.over) << ", round " << round << ": rank " << leaver << " leaves after "
                             << operations << " of " << count << ": " << *causes.begin() << " | "
                             << *causes.rbegin());
    REQUIRE(causes.size() == 1);
    REQUIRE(causes.begin()->find("rank " + std::to_string(leaver) + " has left: ") == 0);
  }
}

}  // namespace rondo::testing

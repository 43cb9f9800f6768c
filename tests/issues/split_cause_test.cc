// SPDX-License-Identifier: Apache-2.0
//
// The deadline of the parent was taken for "nothing in the store". So the error accused rank 0 of
// the group, which had done nothing wrong.
#include <condition_variable>
#include <mutex>

#include "catch.h"
#include "lib/connect.h"
#include "support/ranks.h"

namespace rondo::testing {

using Catch::Contains;

TEST_CASE("a split that meets its deadline names the rank that did not come", "[split]") {
  constexpr int size = 4, late = 2;
  MemoryStore store;
  std::mutex mutex;
  std::condition_variable changed;
  int failed = 0;
  std::vector<std::string> causes(size);
  CHECK_NOTHROW(run_ranks(size, "late split", [&](int rank) {
    Options options = Setup::quick_options();
    options.rank = rank;
    options.size = size;
    options.store = &store;
    options.transports = {"tcp"};
    options.connect_deadline = std::chrono::seconds{5};
    const auto factory = [&](const rendezvous::Place& place, const Options& o) {
      std::unique_lock lock(mutex);
      // The late rank waits until the others have given up, and its own time is over.
      if (!place.group.empty() && rank == late) {
        changed.wait(lock, [&] { return failed == size - 1; });
        changed.wait_until(lock, place.deadline, [] { return false; });
      }
      return lib::default_transports()(place, o);
    };
    Communicator c = lib::connect_with(options, factory);
    try {
      (void)c.split(0, 0);
    } catch (const Error& error) {
      causes[static_cast<std::size_t>(rank)] = error.what();
    }
    const std::lock_guard lock(mutex);
    ++failed;
    changed.notify_all();
  }));
  for (int rank = 0; rank < size; ++rank) {
    INFO("rank " << rank);
    const std::string& cause = causes[static_cast<std::size_t>(rank)];
    CHECK_THAT(cause, !Contains("rank 0 was not found"));
    const bool own = cause.find("rank 2 could not join") != cause.npos;
    if (rank == late && own)  // its call had all it needed before it heard of the failure
      CHECK_THAT(cause, Contains("its time was over before it looked for rank 0"));
    else
      CHECK_THAT(cause, Contains("all_gather") && Contains("\"split\"") &&
                            Contains("rank 2 has not called"));
  }
}

}  // namespace rondo::testing

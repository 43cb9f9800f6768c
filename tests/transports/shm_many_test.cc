// SPDX-License-Identifier: Apache-2.0
#include "catch.h"
#include "conformance.h"
#include "shm_helpers.h"

namespace rondo::testing {

// All ranks are in this process, and each has two descriptors for every other one.
TEST_CASE("64 ranks of a host meet, and leave nothing open") {
  const int ranks = have_room(64) ? 64 : 16;
  if (ranks < 64) WARN("16 ranks: the hard limit of open files leaves no room for 64");
  const std::ptrdiff_t before = open_descriptors();
  {
    Group group([](int size) { return shm_transports(size); }, ranks);
    for (int from = 0; from < ranks; ++from) {
      group[from].send((from + 1) % ranks, transports::Lane::bulk, 1, 1000);
      group[(from + 1) % ranks].expect(from, transports::Lane::bulk, {1, 1000, false, 8});
    }
    group.finish();
  }
  CHECK(open_descriptors() == before);
}

}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/shm.h"

#include "catch.h"
#include "conformance.h"
#include "shm_helpers.h"

namespace rondo::testing {

TEST_CASE("shm does what every transport must do") {
  for (const Check& check : conformance()) DYNAMIC_SECTION(check.name) {
      check.run([](int size) { return shm_transports(size); });
    }
}

TEST_CASE("a look at one shm link takes what came over it, and nothing of others") {
  Group group([](int size) { return shm_transports(size); }, 3);
  const auto lane = transports::Lane::messages;
  transports::Link& link = group[0].transport().link(1, lane);
  CHECK_FALSE(link.look());
  for (const int from : {1, 2}) {
    group[from].send(0, lane, 1, 100);
    group[from].turn();
    group[0].expect(from, lane, {1, 100, true, 1});
  }
  CHECK(link.look());
  CHECK(group[0].frames == 1);
  CHECK_FALSE(link.look());
  group.finish();
}

TEST_CASE("a rank does not sleep over a message that only its header tells of") {
  Group group([](int size) { return shm_transports(size); }, 2);
  const auto lane = transports::Lane::messages;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    group[0].expect(1, lane, {number, 8, true, 1});
    while (group[0].turn()) {
    }
    CHECK(group[0].transport().prepare_sleep());
    group[0].turn();
    group[1].send(0, lane, number, 8);
    group[1].turn();
    CHECK_FALSE(group[0].transport().prepare_sleep());
    group[0].turn();
    CHECK(group[0].frames == static_cast<int>(number));
  }
  group.finish();
}

TEST_CASE("a header that a look has found and the sink holds is shown again in a pass") {
  Group group([](int size) { return shm_transports(size); }, 2);
  const auto lane = transports::Lane::messages;
  transports::Link& link = group[0].transport().link(1, lane);
  for (std::uint64_t number = 1; number <= 3; ++number) {
    while (group[0].turn()) {
    }
    group[1].send(0, lane, number, 8);
    group[1].turn();
    link.look();
    CHECK(group[0].held == static_cast<int>(number));
    group[0].expect(1, lane, {number, 8, true, 1});
    group[0].turn();
    CHECK(group[0].frames == static_cast<int>(number));
  }
  group.finish();
}

// Each small frame ends at another place of the ring, with bytes that would be a header if the word
// after the frame were not cleared.
TEST_CASE("no payload of an earlier lap is taken for a header") {
  Group group([](int size) { return shm_transports(size); }, 2);
  const auto lane = transports::Lane::bulk;
  std::uint64_t number = 1;
  for (int lap = 0; lap < 4; ++lap)
    for (std::size_t bytes = 0; bytes <= 6000; bytes += 61, ++number) {
      group[0].send(1, lane, number, bytes);
      group[1].expect(0, lane, {number, bytes, number % 2 == 0, 1});
      group[0].turn();
      group[1].turn();
      CHECK_FALSE(group[1].transport().link(0, lane).look());
    }
  group.finish();
}

}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
// Checks what mem does on purpose: full links, pieces, delays, stalls; on one thread, so that a
// seed says everything.
#include "transports/mem/mem.h"

#include <poll.h>

#include <algorithm>
#include <vector>

#include "catch.h"
#include "mem_pair.h"

namespace rondo::mem_testing {

TEST_CASE("frames come in order and whole, whatever the link holds") {
  const std::size_t capacity = GENERATE(1, 3, 16, 63, 64, 65, 100, 1000, 1 << 18);
  const bool placed = GENERATE(false, true);
  const std::size_t queue = GENERATE(1, 4);
  mem::MemFaults faults;
  faults.capacity = capacity;
  faults.queue = queue;
  Pair pair(faults);
  pair.sink.placed = placed;
  pair.sink.element = 8;
  pair.run(mixed);
  pair.check_frames(mixed.size());
  if (capacity > 80'000) {
    CHECK(pair.sender.sent_later == 0);
    CHECK(pair.asked(transports::Send::done) == static_cast<long>(mixed.size()));
  } else {
    CHECK(pair.asked(transports::Send::copied) == static_cast<long>(pair.sender.sent_later));
    CHECK(pair.asked(transports::Send::copied) != 0);
    CHECK(pair.asked(transports::Send::queued) == 0);  // none is larger than eager_bytes
  }
}

TEST_CASE("pieces cut elements anywhere, and the sink still sees whole ones") {
  mem::MemFaults faults;
  faults.split = GENERATE(1, 2, 7, 100);
  faults.capacity = GENERATE(5, 4096);
  const std::uint64_t seed = GENERATE(1, 2, 3);
  Pair pair(faults, seed);
  pair.sink.element = 8;
  pair.run(mixed);
  pair.check_frames(mixed.size());
  CHECK(*std::max_element(pair.sink.views.begin(), pair.sink.views.end()) <=
        std::max<std::size_t>(32, faults.split));
}

TEST_CASE("a seed says which pieces there are") {
  const auto views = [](std::uint64_t seed) {
    mem::MemFaults faults;
    faults.split = 50;
    Pair pair(faults, seed);
    pair.run({5000});
    return pair.sink.views;
  };
  CHECK(views(7) == views(7));
  CHECK(views(7) != views(8));
}

TEST_CASE("a delayed frame is seen after so many calls, and nobody sleeps meanwhile") {
  mem::MemFaults faults;
  faults.delay = 20;
  int longest = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Pair pair(faults, seed);
    pair.sink.to_come = {8};
    const transports::Blob payload = payload_of(0, 8);
    REQUIRE(pair.out().send(header_of(0), payload) == transports::Send::done);
    int calls = 0;
    while (pair.sink.frames.empty()) {
      REQUIRE_FALSE(pair.ends[1]->prepare_sleep());
      pair.ends[1]->progress();
      REQUIRE(++calls <= 21);
    }
    CHECK(pair.ends[1]->prepare_sleep());
    longest = std::max(longest, calls);
  }
  CHECK(longest > 15);
}

TEST_CASE("a stalled frame is refused or kept for a while, and everything arrives") {
  mem::MemFaults faults;
  faults.stall = 10;
  bool refused = false, queued = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Pair pair(faults, seed);
    pair.run(mixed);
    pair.check_frames(mixed.size());
    refused |= pair.asked(transports::Send::full) != 0;
    queued |= pair.asked(transports::Send::copied) != 0;
  }
  CHECK(refused);
  CHECK(queued);
}

TEST_CASE("a sender that was refused does not sleep before it may try again") {
  mem::MemFaults faults;
  faults.capacity = 64;
  faults.queue = 1;
  Pair pair(faults);
  const transports::Blob payload = payload_of(0, 100);
  REQUIRE(pair.out().send(header_of(0), payload) == transports::Send::copied);
  REQUIRE(pair.out().send(header_of(1), payload) == transports::Send::full);
  pair.ends[0]->progress();
  CHECK(pair.ends[0]->prepare_sleep());  // no room: the receiver has to move first
  pair.sink.to_come = {100, 100};
  pair.ends[1]->progress();
  pollfd watch{pair.ends[0]->wake_source().descriptor, POLLIN, 0};
  CHECK(::poll(&watch, 1, 0) == 1);  // and its moving rings
  CHECK(pair.ends[0]->progress());
  CHECK(::poll(&watch, 1, 0) == 0);
}

TEST_CASE("a small frame goes at once or is refused, until there is room for all of it") {
  mem::MemFaults faults;
  faults.capacity = 300;
  Pair pair(faults);
  const transports::Blob payload = payload_of(0, 100);
  REQUIRE(pair.out().send(header_of(0), payload) == transports::Send::done);
  REQUIRE(pair.out().send(header_of(1), payload) == transports::Send::full);
  CHECK_FALSE(pair.ends[0]->progress());
  CHECK(pair.ends[0]->prepare_sleep());
  pair.sink.to_come = {100, 100};
  CHECK(pair.ends[1]->progress());
  CHECK_FALSE(pair.ends[0]->prepare_sleep());
  CHECK(pair.ends[0]->progress());
  CHECK(pair.out().send(header_of(1), payload) == transports::Send::done);
}

TEST_CASE("a large payload is borrowed until it has gone") {
  mem::MemFaults faults;
  faults.capacity = 5000;
  faults.queue = 2;
  Pair pair(faults);
  const std::vector<std::size_t> sizes = {transports::eager_bytes + 1, transports::eager_bytes,
                                          3 * transports::eager_bytes, 10};
  pair.run(sizes);
  pair.check_frames(sizes.size());
  CHECK(pair.asked(transports::Send::queued) == 2);
  CHECK(pair.asked(transports::Send::copied) == 1);
  CHECK(pair.sender.sent_later == 3);
}

TEST_CASE("a header on hold is shown again when the sink has an answer") {
  Pair pair;
  pair.payloads = {payload_of(0, 8), payload_of(1, 16)};
  pair.settle();
  CHECK(pair.sink.arrivals == 1);
  CHECK(pair.ends[1]->prepare_sleep());  // the frame waits for the sink: no reason to stay awake
  pair.sink.to_come = {8, 16};
  pair.sink.holds = 2;
  pair.settle();
  CHECK(pair.sink.arrivals == 5);
  pair.check_frames(2);
}

TEST_CASE("after a refusal nothing more is read") {
  Pair pair;
  pair.sink.refuse = true;
  pair.run({8, 8, 8});
  CHECK(pair.sink.arrivals == 1);
  CHECK(pair.sink.frames.empty());
  CHECK(pair.ends[1]->prepare_sleep());
}

}  // namespace rondo::mem_testing

// SPDX-License-Identifier: Apache-2.0
// How links of mem end and what may go wrong on them: cuts, flipped bits, endpoints that leave,
// wrong use; and two threads.
#include <poll.h>

#include <exception>
#include <string>
#include <thread>

#include <rondo/error.h>

#include "catch.h"
#include "mem_pair.h"

namespace rondo::mem_testing {

TEST_CASE("a cut breaks both ends after exactly so many bytes") {
  mem::MemFaults faults;
  const std::uint64_t bytes = GENERATE(0, 1, 63, 64, 65, 72, 100, 136, 200, 5000);
  faults.cuts = {{0, 1, transports::Lane::bulk, bytes, false}};
  faults.capacity = GENERATE(10, 1 << 18);
  Pair pair(faults);
  pair.run(mixed);
  std::size_t whole = 0;  // frames that fit before the cut
  for (std::uint64_t left = bytes; whole < mixed.size() && left >= 64 + mixed[whole]; ++whole)
    left -= 64 + mixed[whole];
  pair.check_frames(whole);
  for (const NotingSink* sink : {&pair.sender, &pair.sink}) {
    CHECK(sink->breaks == 1);
    CHECK_FALSE(sink->clean);
    CHECK(sink->code == std::errc::connection_reset);
    CHECK(sink->what ==
          "connection reset by peer (a fault, after " + std::to_string(bytes) + " bytes)");
  }
  CHECK(pair.out().send(header_of(0), {}) == transports::Send::full);
  CHECK(pair.ends[0]->prepare_sleep());
  CHECK(pair.ends[1]->prepare_sleep());
}

TEST_CASE("a clean cut falls on the end of a frame") {
  mem::MemFaults faults;
  faults.cuts = {{0, 1, transports::Lane::bulk, 137, true}};
  Pair pair(faults);
  pair.run(mixed);
  pair.check_frames(3);
  CHECK(pair.sink.breaks == 1);
  CHECK(pair.sink.clean);
  CHECK(pair.sender.breaks == 1);
  CHECK(pair.sender.clean);
}

TEST_CASE("what is held back arrives after its release, and wakes its receiver") {
  Pair pair;
  pair.fabric.hold(0, 1, transports::Lane::bulk);
  pair.run({8, 100});
  CHECK(pair.sink.arrivals == 0);
  CHECK(pair.ends[1]->prepare_sleep());
  pollfd bell{pair.ends[1]->wake_source().descriptor, POLLIN, 0};
  CHECK(::poll(&bell, 1, 0) == 0);
  pair.fabric.release(0, 1, transports::Lane::bulk);
  CHECK(::poll(&bell, 1, 0) == 1);
  CHECK_FALSE(pair.ends[1]->prepare_sleep());
  pair.settle();
  pair.check_frames(2);
  CHECK_THROWS_AS(pair.fabric.hold(0, 0, transports::Lane::bulk), Error);
  CHECK_THROWS_AS(pair.fabric.release(0, 2, transports::Lane::bulk), Error);
}

TEST_CASE("a hold concerns one direction and one lane") {
  Pair pair;
  pair.fabric.hold(1, 0, transports::Lane::bulk);
  pair.fabric.hold(0, 1, transports::Lane::urgent);
  pair.run({8, 100});
  pair.check_frames(2);
}

TEST_CASE("an endpoint that goes away closes its links in order") {
  Pair pair;
  pair.run({8, 100});
  pair.payloads.push_back(payload_of(2, 300));
  REQUIRE(pair.out().send(header_of(2), pair.payloads[2]) == transports::Send::done);
  pair.sink.to_come = {300};
  pair.ends[0].reset();
  CHECK_FALSE(pair.ends[1]->prepare_sleep());
  while (pair.ends[1]->progress()) {
  }
  pair.check_frames(3);                                    // what was sent before still arrives
  CHECK(pair.sink.breaks == transports::link_lane_count);  // every lane
  CHECK(pair.sink.clean);
}

TEST_CASE("an endpoint that goes away in the middle of a frame does not close in order") {
  mem::MemFaults faults;
  faults.capacity = 100;
  Pair pair(faults);
  const transports::Blob payload = payload_of(0, 300);
  REQUIRE(pair.out().send(header_of(0), payload) == transports::Send::copied);
  pair.sink.to_come = {300};
  pair.ends[0].reset();
  while (pair.ends[1]->progress()) {
  }
  CHECK(pair.sink.breaks == transports::link_lane_count);  // the urgent lane first
  CHECK_FALSE(pair.sink.clean);
  CHECK(pair.sink.frames.empty());
}

TEST_CASE("one bit arrives wrong, where it was asked for") {
  mem::MemFaults faults;
  const bool header = GENERATE(true, false);
  const std::uint64_t bit = GENERATE(0, 9, 511, 1'000'003);
  const std::uint64_t frame = GENERATE(0, 3, 4);
  faults.flips = {{0, 1, transports::Lane::bulk, frame, header, bit}};
  faults.capacity = GENERATE(7, 1 << 18);
  Pair pair(faults);
  pair.run(mixed);
  REQUIRE(pair.sink.frames.size() == mixed.size());
  std::size_t victim = frame;
  while (!header && mixed[victim] == 0) ++victim;
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    transports::HeaderBytes wanted_header = header_of(i);
    transports::Blob wanted = pair.payloads[i];
    if (i == victim && header)
      wanted_header[bit % 512 / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    if (i == victim && !header)
      wanted[bit % (8 * wanted.size()) / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    CHECK(pair.sink.headers[i] == wanted_header);
    CHECK(pair.sink.frames[i] == wanted);
  }
}

TEST_CASE("addresses of another fabric, another rank or garbage are not reached") {
  mem::MemFabric fabric(3), other(3);
  const auto rank0 = fabric.endpoint(0), rank1 = fabric.endpoint(1), foreign = other.endpoint(1);
  CHECK(rank0->reach(1, rank1->address()).distance == transports::distance_process);
  CHECK_FALSE(rank0->reach(1, foreign->address()).distance);
  CHECK_FALSE(rank0->reach(2, rank1->address()).distance);
  CHECK_FALSE(rank0->reach(1, {}).distance);
  transports::Blob longer = rank1->address();
  longer.push_back(std::byte{0});
  CHECK_FALSE(rank0->reach(1, longer).distance);
  CHECK(&rank0->link(1, transports::Lane::urgent) != &rank0->link(1, transports::Lane::bulk));
  CHECK(&rank0->link(1, transports::Lane::urgent) == &rank0->link(1, transports::Lane::urgent));
}

TEST_CASE("faults that cannot be are refused") {
  CHECK_THROWS_AS(mem::MemFabric(0), Error);
  mem::MemFaults faults;
  faults.capacity = 0;
  CHECK_THROWS_AS(mem::MemFabric(2, faults), Error);
  faults = {};
  faults.queue = 0;
  CHECK_THROWS_AS(mem::MemFabric(2, faults), Error);
  faults = {};
  faults.cuts = {{0, 2, transports::Lane::bulk, 1, false}};
  CHECK_THROWS_WITH(mem::MemFabric(2, faults),
                    Catch::Contains("rank 0 to rank 2") && Catch::Contains("0 to 1"));
  faults.cuts = {{1, 1, transports::Lane::bulk, 1, false}};
  CHECK_THROWS_AS(mem::MemFabric(2, faults), Error);
  mem::MemFabric fabric(2);
  CHECK_THROWS_AS(fabric.endpoint(2), Error);
  const auto once = fabric.endpoint(1);
  CHECK_THROWS_AS(fabric.endpoint(1), Error);
}

namespace {

// Exchanges `frames` frames with a peer that does the same; sleeps whenever the transport allows.
void exchange(transports::Transport& end, int peer, NotingSink& sink, std::size_t frames) {
  const transports::Blob payload = payload_of(0, 256);
  sink.to_come.assign(frames, 256);
  end.open({&sink, &sink, &sink});
  transports::Link& link = end.link(peer, transports::Lane::urgent);
  std::size_t begun = 0, done = 0;
  while (sink.frames.size() < frames || done + sink.sent_later < frames) {
    bool moved = false;
    // At most two frames ahead of the peer, so that both ends fall asleep and wake all the time.
    while (begun < std::min(frames, sink.frames.size() + 2)) {
      const transports::Send answer = link.send(header_of(0), payload);
      if (answer == transports::Send::full) break;
      if (answer == transports::Send::done) ++done;
      ++begun;
      moved = true;
    }
    moved |= end.progress();
    if (moved || !end.prepare_sleep()) continue;
    pollfd watch{end.wake_source().descriptor, POLLIN, 0};
    if (::poll(&watch, 1, 20'000) != 1) throw Error(Errc::deadline_exceeded, "a wake-up was lost");
  }
}

}  // namespace

TEST_CASE("no wake-up is lost between two threads that sleep whenever they may") {
  mem::MemFaults faults;
  faults.capacity = GENERATE(50, 400, 100'000);
  mem::MemFabric fabric(2, faults);
  const auto a = fabric.endpoint(0), b = fabric.endpoint(1);
  NotingSink sink_a, sink_b;
  std::exception_ptr failure;
  std::thread other([&] {
    try {
      exchange(*b, 0, sink_b, 3000);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  CHECK_NOTHROW(exchange(*a, 1, sink_a, 3000));
  other.join();
  CHECK_FALSE(failure);
}

}  // namespace rondo::mem_testing

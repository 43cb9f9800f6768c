// SPDX-License-Identifier: Apache-2.0
//
// All that a rank has sent over tcp arrives, although the rank leaves.
#include <future>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "catch.h"
#include "conformance.h"
#include "tcp_helpers.h"

namespace rondo::testing {
namespace {

using transports::Lane;

constexpr std::chrono::seconds leaving_patience{20};
// The first are more than a link of several paths reads ahead.
constexpr std::size_t unread_bytes = 200'000, frame_bytes = 30'000;

base::TimePoint from_now(milliseconds time) {
  return base::Clock::now() + time;
}

// Two ranks whose link is open. Rank 1 has sent a frame that rank 0 does not take.
class LeavingPair {
 public:
  explicit LeavingPair(unsigned paths)
      : group_(
            [=](int size) {
              return tcp_transports(size, [=](tcp::Options& o) { o.connections = paths; });
            },
            2) {
    group_[1].send(0, Lane::messages, 1, unread_bytes);
    REQUIRE(group_.run_until([&] { return group_[1].idle() && group_[0].held > 0; }));
  }
  Node& operator[](int rank) { return group_[rank]; }

  // Sends from this rank until its socket is full. Returns how many frames it took whole.
  std::uint64_t fill(int rank) {
    transports::Link& link = group_[rank].transport().link(1 - rank, Lane::messages);
    for (std::uint64_t number = 0;; ++number)
      if (link.send(header_of(number), payload_of(number, frame_bytes)) != transports::Send::done)
        return number;
  }
  // Rank 1 takes so many frames, and then sees that the link ends, perhaps within the next frame.
  void receive(std::uint64_t frames) {
    for (std::uint64_t number = 0; number <= frames; ++number)
      group_[1].expect(0, Lane::messages, {number, frame_bytes});
    const base::TimePoint until = from_now(leaving_patience);
    while (group_[1].broken_links.empty() && base::Clock::now() < until) group_[1].turn();
    CHECK(group_[1].frames == static_cast<int>(frames));
    CHECK(group_[1].broken_links.size() == 1);
  }
  std::vector<int> leave(int rank, base::TimePoint until) {
    group_[rank].transport().halt();
    return group_[rank].transport().linger(until);
  }

 private:
  Group group_;
};

}  // namespace

TEST_CASE("a rank that leaves over tcp lingers until its last frames can be read") {
  LeavingPair pair(GENERATE(1u, 3u));
  const std::uint64_t frames = pair.fill(0);
  REQUIRE(frames > 4);
  auto leaving = std::async(std::launch::async, [&] {
    auto late = pair.leave(0, from_now(leaving_patience));
    pair[0].destroy();
    return late;
  });
  pair.receive(frames);
  CHECK(leaving.get().empty());
}

TEST_CASE("a rank that leaves over tcp waits for a peer that reads nothing until its time is up") {
  LeavingPair pair(GENERATE(1u, 3u));
  const std::uint64_t frames = pair.fill(0);
  const base::TimePoint until = from_now(milliseconds{100});
  CHECK(pair.leave(0, until) == std::vector<int>{1});
  CHECK(base::Clock::now() >= until);
  pair[0].destroy();
  pair.receive(frames);  // the kernel has kept them
}

TEST_CASE("ranks that leave over tcp at once do not wait for each other") {
  LeavingPair pair(GENERATE(1u, 3u));
  pair.fill(0);
  pair.fill(1);
  const base::TimePoint until = from_now(leaving_patience);
  auto other = std::async(std::launch::async, [&] { return pair.leave(1, until); });
  CHECK(pair.leave(0, until).empty());
  CHECK(other.get().empty());
  CHECK(base::Clock::now() < until);
}

TEST_CASE("a rank that leaves over tcp does not wait for a peer that is gone") {
  LeavingPair pair(GENERATE(1u, 3u));
  pair.fill(0);
  pair[1].destroy();
  const base::TimePoint until = from_now(leaving_patience);
  CHECK(pair.leave(0, until).empty());
  CHECK(base::Clock::now() < until);
}

// The second frame to a rank that has gone meets EPIPE. That ends no link which has more to read,
// and no link of several paths half a second later.
TEST_CASE("what came over tcp is read although frames to the rank that sent it fail") {
  const unsigned paths = GENERATE(1u, 3u);
  LeavingPair pair(paths);
  transports::Link& link = pair[0].transport().link(1, Lane::messages);
  for (std::uint64_t number = 0; number < 3; ++number)
    REQUIRE(link.send(header_of(number), payload_of(number, frame_bytes)) ==
            transports::Send::done);
  REQUIRE(pair.leave(0, from_now(leaving_patience)).empty());
  pair[0].destroy();
  for (std::uint64_t number = 2; number < 5; ++number) {
    pair[1].send(0, Lane::messages, number, 0);
    for (int turn = 0; turn < 100; ++turn) pair[1].turn();
  }
  for (const base::TimePoint end = from_now(milliseconds{paths > 1 ? 700 : 0});
       base::Clock::now() < end;)
    pair[1].turn();
  CHECK(pair[1].broken_links.empty());
  pair.receive(3);
}

}  // namespace rondo::testing

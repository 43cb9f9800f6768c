// SPDX-License-Identifier: Apache-2.0
//
// A program between two hosts did not need the secret: it could forward the handshake, and then
// speak as rank 0, or as another rank to rank 0. tests/transports/tcp_relay_test.cc has the same
// for data connections.
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "catch.h"
#include "lib/parties.h"
#include "lib/wire/messages.h"
#include "support/relay.h"

namespace rondo::tests {
namespace {

using testing::Attack;
using testing::behind_proof;
using testing::behind_verdict;
using testing::Relay;
using testing::RelayBytes;

// Two ranks. Rank 1 uses the address of the relay as that of rank 0. Connections are treated as if
// they were between hosts.
struct Between {
  explicit Between(Attack attack) {
    const std::uint16_t port = free_port();
    wire::Endpoint target = wire::loopback_address(port).front();
    relay = std::make_unique<Relay>(target, std::move(attack));
    places = {
        place_of(0, 2, "tcp://127.0.0.1:" + std::to_string(port), "secret"),
        place_of(1, 2, "tcp://127.0.0.1:" + std::to_string(relay->endpoint().port()), "secret")};
    for (rendezvous::Place& place : places) place.protect_all = true;
  }

  std::vector<Outcome> join(milliseconds limit = milliseconds{20'000}) {
    return join_all(places, with_deadline(limit));
  }

  std::unique_ptr<Relay> relay;
  std::vector<rendezvous::Place> places;
};

constexpr std::size_t prefix = 8, tag = 16;
// Sizes of what rank 1 sends while it joins (its record) and receives (the members, and two
// records).
std::size_t record_frame(int rank) {
  return prefix + 8 + record_of(rank).size() + tag;
}

std::size_t members_frames() {
  std::size_t all = 0;
  for (const auto& message : {wire::encode(wire::MembersMessage{1, 2}),
                              wire::encode(wire::MemberMessage{0, record_of(0)}),
                              wire::encode(wire::MemberMessage{1, record_of(1)})})
    all += message.size() + tag;
  return all;
}

RelayBytes forged_verdict(RelayBytes behind) {
  RelayBytes all = wire::encode(wire::VerdictMessage{{Errc::aborted, "rank 0 says so"}});
  all.resize(all.size() + tag);
  all.insert(all.end(), behind.begin(), behind.end());
  return all;
}

}  // namespace

TEST_CASE("a rank on another host gets tags without being asked") {
  const std::uint16_t port = free_port();
  const rendezvous::Place place =
      place_of(0, 2, "tcp://127.0.0.1:" + std::to_string(port), "secret");
  auto rank_0 = std::async(
      std::launch::async, [&] { return join_one(place, with_deadline(milliseconds{20'000}), {}); });
  base::FileDescriptor outside;
  std::string why;
  const base::TimePoint until = base::after(base::Clock::now(), milliseconds{20'000});
  while (!wire::connect_to(wire::loopback_address(port).front(), until, why) &&
         base::Clock::now() < until)
    std::this_thread::yield();
  outside = testing::connect_from_outside(port);
  if (outside)
    CHECK(testing::agree_over(outside, {base::Purpose::rendezvous, 1, 2, 0, 0, 0}, "secret")
              .protection == base::Protection::headers);
  else
    WARN("skipped: this host has no IPv4 address other than loopback");
  // Ends the join for both.
  rendezvous::Place other = place;
  other.rank = 1;
  other.size = 3;
  CHECK_FALSE(join_one(other, with_deadline(milliseconds{20'000}), {}).joined);
  rank_0.wait();
}

TEST_CASE("ranks join and leave over a relay that changes nothing") {
  Between between({});
  auto outcomes = between.join();
  REQUIRE(what_is_wrong(outcomes).empty());
}

TEST_CASE("a relay cannot change what rank 0 says to a rank that joins") {
  // Within the record of rank 0.
  const std::size_t members = wire::encode(wire::MembersMessage{1, 2}).size() + tag;
  Between between(
      {false,
       behind_verdict + members + wire::encode(wire::MemberMessage{0, record_of(0)}).size() - 1, 1,
       testing::altered});
  const auto outcomes = between.join();
  REQUIRE_FALSE(outcomes[1].joined);
  CHECK(outcomes[1].code == Errc::authentication);
  INFO(outcomes[1].message);
  CHECK(outcomes[1].message.find("rank 0") != std::string::npos);
  CHECK(outcomes[1].message.find("wrong tag") != std::string::npos);
}

TEST_CASE("a relay cannot change what a rank says to rank 0 when it joins") {
  Between between({true, behind_proof + record_frame(1) - tag - 1, 1, testing::altered});
  const auto outcomes = between.join(milliseconds{5'000});
  REQUIRE_FALSE(outcomes[0].joined);
  INFO(outcomes[0].message);
  CHECK(outcomes[0].message.find("rank 1") != std::string::npos);
  CHECK(outcomes[0].message.find("wrong tag") != std::string::npos);
}

TEST_CASE("a relay cannot speak as rank 0 once the ranks have joined") {
  Between between({false, behind_verdict + members_frames(), 1, forged_verdict});
  auto outcomes = between.join();
  REQUIRE(what_is_wrong(outcomes).empty());
  Listener zero, one;
  outcomes[0].joined->control->start(zero);
  outcomes[1].joined->control->start(one);
  // Rank 0 sends something, and the relay puts its own message in front of it.
  outcomes[0].joined->control->publish(PlanConstants{});
  const operation::Failure failure = one.wait_for_failure();
  CHECK(failure.code == Errc::authentication);
  INFO(failure.cause);
  CHECK(failure.cause.find("rank 0 says so") == std::string::npos);
  CHECK(failure.cause.find("lost rank 0") != std::string::npos);
  CHECK(failure.cause.find("wrong tag") != std::string::npos);
  outcomes[1].joined->control.reset();
  outcomes[0].joined->control.reset();
}

TEST_CASE("a relay cannot speak as a rank to rank 0") {
  Between between(
      {true, behind_proof + record_frame(1), 1, [](RelayBytes behind) {
         RelayBytes all = wire::encode(wire::ReportMessage{{Errc::aborted, "rank 1 says so"}});
         all.resize(all.size() + tag);
         all.insert(all.end(), behind.begin(), behind.end());
         return all;
       }});
  auto outcomes = between.join();
  REQUIRE(what_is_wrong(outcomes).empty());
  Listener zero, one;
  outcomes[0].joined->control->start(zero);
  outcomes[1].joined->control->start(one);
  outcomes[1].joined->control->report({Errc::peer_lost, "something true"});
  const operation::Failure failure = zero.wait_for_failure();
  CHECK(failure.code == Errc::authentication);
  INFO(failure.cause);
  CHECK(failure.cause.find("rank 0 lost rank 1") != std::string::npos);
  CHECK(failure.cause.find("wrong tag") != std::string::npos);
  outcomes[1].joined->control.reset();
  outcomes[0].joined->control.reset();
}

}  // namespace rondo::tests

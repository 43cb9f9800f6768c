// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/losses.h"

#include "catch.h"
#include "support/idle_link.h"

using namespace rondo;
using operation::Losses;

namespace {

struct Lost : testing::IdleLink {
  Lost() : IdleLink(2, transports::Lane::bulk, nullptr, "10.0.0.7:41022") {}
};

const base::TimePoint start{std::chrono::hours{1}};
const auto reset = make_error_code(Errc::peer_lost);
const std::string cause = "rank 0 lost rank 2 at 10.0.0.7:41022: connection reset by peer";

}  // namespace

TEST_CASE("a link that broke counts as lost when an operation needs it", "[losses]") {
  Losses losses(0, 3);
  losses.lost(Lost(), reset, "connection reset by peer", false, start);
  CHECK(losses.next_check() == base::TimePoint::max());
  const auto failure = losses.needed(2, {}, start);
  REQUIRE(failure);
  CHECK(failure->code == Errc::peer_lost);
  CHECK(failure->cause == cause);
  CHECK(failure->lost == 2);
  CHECK(failure->culprits == std::vector<int>{2});
  CHECK(failure->link == "10.0.0.7:41022");
}

TEST_CASE("a link that was not authentic blames no rank", "[losses]") {
  Losses losses(0, 3);
  losses.lost(Lost(), make_error_code(Errc::authentication), "wrong key", false, start);
  const auto failure = losses.needed(2, {}, start);
  REQUIRE(failure);
  CHECK(failure->code == Errc::authentication);
  CHECK(failure->lost == -1);
  CHECK(failure->culprits.empty());
}

TEST_CASE("an orderly close counts as lost some time after an operation first needs the link",
          "[losses]") {
  Losses losses(0, 3);
  losses.lost(Lost(), reset, "connection reset by peer", true, start);
  const base::TimePoint need = start + std::chrono::seconds{7};
  CHECK_FALSE(losses.needed(2, {}, need));
  CHECK(losses.next_check() == need + Losses::leaving_timeout);
  losses.begin_check();
  CHECK(losses.next_check() == base::TimePoint::max());
  CHECK_FALSE(losses.needed(2, {}, need + Losses::leaving_timeout - nanoseconds{1}));
  CHECK(losses.next_check() == need + Losses::leaving_timeout);
  const auto failure = losses.needed(2, {}, need + Losses::leaving_timeout);
  REQUIRE(failure);
  CHECK(failure->cause == cause);
}

// The connection may wait for this rank, which has done something else for long.
TEST_CASE("a rank that left long ago counts as left when its link has had time to appear",
          "[losses]") {
  Losses losses(0, 3);
  losses.left(2, start);
  const base::TimePoint need = start + std::chrono::hours{1};
  CHECK_FALSE(losses.needed(2, {.linked = false}, need));
  CHECK(losses.next_check() == need + Losses::leaving_timeout);
  CHECK_FALSE(losses.needed(2, {.linked = true}, need + Losses::leaving_timeout));
  const auto failure = losses.needed(2, {.linked = false}, need + Losses::leaving_timeout);
  REQUIRE(failure);
  CHECK(failure->code == Errc::peer_left);
}

TEST_CASE("what a rank has sent before it left is still read", "[losses]") {
  Losses losses(0, 3);
  losses.left(2, start);
  CHECK_FALSE(losses.needed(2, {.sends = false, .linked = true}, start + std::chrono::hours{1}));
  // The link has not been seen: the bytes may be on their way.
  CHECK_FALSE(losses.needed(2, {.sends = false, .linked = false}, start));
  CHECK(losses.next_check() == start + Losses::unseen_time);
  const auto unseen =
      losses.needed(2, {.sends = false, .linked = false}, start + Losses::unseen_time);
  REQUIRE(unseen);
  CHECK(unseen->code == Errc::peer_left);
  // Nobody will take what is still to be sent.
  const auto failure = losses.needed(2, {.sends = true, .linked = true}, start);
  REQUIRE(failure);
  CHECK(failure->code == Errc::peer_left);
  CHECK(failure->lost == 2);
  // The link has ended: nothing more comes. The rank counts as left and not as lost, even after a
  // reset.
  const base::TimePoint end = start + std::chrono::seconds{5};
  losses.lost(Lost(), reset, "connection reset by peer", false, end);
  CHECK_FALSE(losses.needed(2, {}, end));
  const auto last = losses.needed(2, {}, end + Losses::leaving_timeout);
  REQUIRE(last);
  CHECK(last->code == Errc::peer_left);
}

TEST_CASE("a rank whose link ended before the message of its leave came has left", "[losses]") {
  Losses losses(0, 3);
  losses.lost(Lost(), reset, "connection reset by peer", true, start);
  const base::TimePoint left_at = start + std::chrono::seconds{5};
  losses.left(2, left_at);
  CHECK_FALSE(losses.needed(2, {}, left_at));
  const auto failure = losses.needed(2, {}, left_at + Losses::leaving_timeout);
  REQUIRE(failure);
  CHECK(failure->code == Errc::peer_left);
}

TEST_CASE("the loss of a peer that can be replaced counts only when no leave is told", "[losses]") {
  const bool in_order = GENERATE(false, true);
  const Losses::Need need{.replaceable = true};
  Losses losses(0, 3);
  losses.lost(Lost(), reset, "connection reset by peer", in_order, start);
  CHECK_FALSE(losses.needed(2, need, start));
  CHECK(losses.next_check() == start + Losses::patient_time);
  SECTION("it does not come") {
    const auto failure = losses.needed(2, need, start + Losses::patient_time);
    REQUIRE(failure);
    CHECK(failure->code == Errc::peer_lost);
    CHECK(failure->cause == cause);
  }
  SECTION("it comes") {
    const base::TimePoint left_at = start + std::chrono::seconds{1};
    losses.left(2, left_at);
    const auto failure = losses.needed(2, need, left_at + Losses::leaving_timeout);
    REQUIRE(failure);
    CHECK(failure->code == Errc::peer_left);
  }
}

TEST_CASE("a peer that is not authentic is not replaced", "[losses]") {
  Losses losses(0, 3);
  losses.lost(Lost(), make_error_code(Errc::authentication), "wrong key", false, start);
  CHECK(losses.needed(2, {.replaceable = true}, start));
}

TEST_CASE("the next check is the first of all peers'", "[losses]") {
  Losses losses(0, 3);
  losses.left(1, start);
  losses.left(2, start + std::chrono::seconds{1});
  const Losses::Need unseen{.sends = false, .linked = false};
  CHECK_FALSE(losses.needed(2, unseen, start + std::chrono::seconds{1}));
  CHECK_FALSE(losses.needed(1, unseen, start + std::chrono::seconds{1}));
  CHECK(losses.next_check() == start + Losses::unseen_time);
}

TEST_CASE("a lost rank is named without an address where there is no link", "[losses]") {
  CHECK(Losses(0, 3).failure(Errc::peer_lost, 2, nullptr, "its process has ended").cause ==
        "rank 0 lost rank 2: its process has ended");
}

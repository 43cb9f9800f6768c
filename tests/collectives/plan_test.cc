// SPDX-License-Identifier: Apache-2.0
//
// Schedules and plans through the public header.
#include <rondo/plan.h>

#include <rondo/error.h>

#include "catch.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

ScheduleQuery query(Collective operation, std::string algorithm, int ranks, int root = 0) {
  return {.operation = operation, .algorithm = std::move(algorithm), .ranks = ranks, .root = root};
}

}  // namespace

TEST_CASE("the algorithms of an operation by name") {
  using Names = std::vector<std::string>;
  CHECK(list_algorithms(Collective::all_reduce) ==
        Names{"ring", "tree", "star", "doubling", "chain", "halving", "two_shot", "two_level"});
  CHECK(list_algorithms(Collective::broadcast) == Names{"ring", "tree", "star", "two_level"});
  CHECK(list_algorithms(Collective::barrier) ==
        Names{"tree", "star", "doubling", "two_shot", "two_level"});
  CHECK(list_algorithms(Collective::gather) == Names{"ring", "star"});
  CHECK(list_algorithms(Collective::all_to_all) == Names{"pairwise"});
  CHECK(list_algorithms(Collective::reduce_scatter_v) ==
        list_algorithms(Collective::reduce_scatter));
  CHECK(list_algorithms(Collective::send).empty());
}

TEST_CASE("a schedule in words") {
  const std::vector<std::string> ring = {
      "round 0: send slice 0 to 1", "round 1: receive slice 2 from 2, reduce, send to 1",
      "round 2: receive slice 1 from 2, reduce, keep, send to 1",
      "round 3: receive slice 0 from 2, keep, send to 1", "round 4: receive slice 2 from 2, keep"};
  CHECK(describe_schedule(query(Collective::all_reduce, "ring", 3), 0) == ring);
  const auto root = describe_schedule(query(Collective::broadcast, "star", 2), 0);
  REQUIRE(root.size() == 3);
  CHECK(root[0] == "round 0: keep slice 0");
  CHECK(root[1] == "round 1: receive token from 1");
  CHECK(root[2] == "round 1: send slice 0 to 1");
  CHECK(describe_schedule(query(Collective::barrier, "tree", 1), 0).empty());
}

TEST_CASE("a proof through the public header") {
  const ScheduleProof proof = check_schedule(query(Collective::all_reduce, "ring", 5));
  CHECK(proof.problem == "");
  CHECK(proof.slices == 5);
  CHECK(proof.rounds == 8);
  CHECK(proof.slices_sent == std::vector<std::uint64_t>(5, 8));
  const ScheduleProof stuck = check_schedule(query(Collective::all_reduce, "doubling", 4),
                                             {.segments = 2, .depth = 2, .credits = 0});
  CHECK_THAT(stuck.problem, Contains("deadlock"));
}

TEST_CASE("a schedule on hosts") {
  ScheduleQuery on_hosts = query(Collective::all_reduce, "ring", 4);
  on_hosts.hosts = {7, 3, 7, 3};
  CHECK(describe_schedule(on_hosts, 0)[0] == "round 0: send slice 0 to 2");
  CHECK(check_schedule(on_hosts).problem == "");
  on_hosts.hosts.pop_back();
  CHECK_THROWS_WITH(describe_schedule(on_hosts, 0),
                    "hosts has 3 elements, but there are 4 ranks: give one for each rank");
  CHECK_THROWS_AS(explain_plan({.ranks = 4, .hosts = 5, .algorithm = {}}), Error);
}

TEST_CASE("the first candidate is the planner's choice") {
  const auto all = explain_plan({.operation = Collective::all_reduce,
                                 .bytes = 64u << 20,
                                 .ranks = 8,
                                 .cores_per_host = 64,
                                 .algorithm = {}});
  REQUIRE(all.size() == 7);
  CHECK(all[0].algorithm == "ring");
  for (const PlanCandidate& candidate : all) CHECK(candidate.seconds > 0);
  const auto one =
      explain_plan({.operation = Collective::reduce, .bytes = 8, .algorithm = "chain"});
  REQUIRE(one.size() == 1);
  CHECK(one[0].algorithm == "chain");
}

TEST_CASE("questions that cannot be answered say what is possible") {
  CHECK_THROWS_WITH(
      describe_schedule(query(Collective::all_reduce, "rings", 3), 0),
      "algorithm is 'rings'; possible for all_reduce: ring, tree, star, doubling, chain, "
      "halving, two_shot, two_level");
  CHECK_THROWS_WITH(describe_schedule(query(Collective::barrier, "ring", 3), 0),
                    "algorithm ring does not exist for barrier; possible: tree, star, doubling, "
                    "two_shot, two_level");
  CHECK_THROWS_WITH(describe_schedule(query(Collective::reduce, "ring", 3, 3), 0),
                    "root is 3; possible are 0 to 2");
  CHECK_THROWS_WITH(describe_schedule(query(Collective::reduce, "ring", 3, -1), 0),
                    "root is -1; possible are 0 to 2");
  CHECK_THROWS_WITH(describe_schedule(query(Collective::reduce, "ring", 3), 3),
                    "rank is 3; possible are 0 to 2");
  CHECK_THROWS_WITH(describe_schedule(query(Collective::reduce, "ring", 0), 0),
                    Contains("ranks is 0"));
  CHECK_THROWS_AS(check_schedule(query(Collective::reduce, "ring", 5000)), Error);
  CHECK_THROWS_AS(check_schedule(query(Collective::reduce, "ring", 3), {.segments = 0}), Error);
  CHECK_THROWS_AS(check_schedule(query(Collective::reduce, "ring", 3), {.depth = 0}), Error);
  CHECK_THROWS_AS(explain_plan({.ranks = 4, .ranks_per_host = 5, .algorithm = {}}), Error);
  CHECK_THROWS_AS(explain_plan({.ranks = -4, .algorithm = {}}), Error);
}

TEST_CASE("a candidate's terms say what its time is made of") {
  PlanQuery query;
  query.bytes = 64u << 20;
  query.ranks = 8;
  query.cores_per_host = 64;
  query.ranks_per_host = 1;
  for (const PlanCandidate& c : explain_plan(query)) {
    INFO(c.algorithm);
    CHECK(c.byte_seconds > c.latency_seconds);
    CHECK(c.reduce_seconds >= 0);
    CHECK(c.latency_seconds + c.byte_seconds + c.frame_seconds + c.reduce_seconds <=
          c.seconds * 1.01);
  }
  query.bytes = 8;
  for (const PlanCandidate& c : explain_plan(query))
    CHECK(c.latency_seconds > 100 * c.byte_seconds);
  // On a network without latency and with a slow link, bytes are all there is.
  query.bytes = 64u << 20;
  query.constants.network = {.latency_s = 0, .seconds_per_byte = 1e-6, .frame_s = 0};
  query.constants.reduce_seconds_per_byte = 0;
  const auto slow = explain_plan(query);
  CHECK(slow.front().byte_seconds == Approx(slow.front().seconds));
  query.constants.host.frame_s = -1;
  CHECK_THROWS_WITH(explain_plan(query), Contains("out of range"));
}

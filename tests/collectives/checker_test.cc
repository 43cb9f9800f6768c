// SPDX-License-Identifier: Apache-2.0
#include "collectives/proof/checker.h"

#include <algorithm>
#include <string>

#include "catch.h"
#include "support/effort.h"
#include "tests/collectives/all_schedules.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

std::string problem_of(const std::vector<schedules::Schedule>& schedules, Collective operation,
                       const proof::CheckOptions& options = {}) {
  return proof::check(schedules, operation, 0, options).problem;
}

// {slice, from, to, reduce, keep, round}
using Steps = std::vector<schedules::Step>;

std::vector<schedules::Schedule> make(std::uint32_t slices, std::uint32_t rounds,
                                      std::vector<Steps> ranks) {
  std::vector<schedules::Schedule> schedules;
  for (Steps& steps : ranks)
    schedules.push_back({.slices = slices, .rounds = rounds, .steps = std::move(steps)});
  return schedules;
}

int most_ranks() {
  return testing::few_cases() ? 17 : 33;
}

}  // namespace

TEST_CASE("every algorithm at every size, root, depth and with strict credits, in place or not") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    for (int size = 1; size <= most_ranks(); size += size < 9 || !testing::few_cases() ? 1 : 8) {
      const int step = size <= 9 ? 1 : std::max(1, (size - 1) / 2);
      for (int root = 0; root < (schedules::has_root(operation) ? size : 1); root += step) {
        const auto schedules = all_schedules(algorithm, operation, size, root);
        for (const proof::CheckOptions& options :
             {proof::CheckOptions{1, 1, 1}, proof::CheckOptions{9, 1, 1, true},
              proof::CheckOptions{9, 3, 1}, proof::CheckOptions{14, 4, 1, true},
              proof::CheckOptions{20, 16, 1}, proof::CheckOptions{9, 5, 3, true}}) {
          const proof::CheckReport report = proof::check(schedules, operation, root, options);
          INFO(schedules::name_of(algorithm)
               << " " << name_of(operation) << " " << size << " ranks, root " << root);
          INFO(options.segments << " segments, depth " << options.depth << ", credits "
                                << options.credits);
          REQUIRE(report.problem == "");
          REQUIRE(report.rounds <= schedules[0].rounds);
        }
      }
    }
  });
}

// Two ranks that exchange values and then overwrite them need links that copy. The planner gives
// these algorithms small frames.
bool exchanges(schedules::Algorithm algorithm) {
  return algorithm == schedules::Algorithm::doubling || algorithm == schedules::Algorithm::pairwise;
}

TEST_CASE("all but exchanges run over links that read memory until the receiver takes a frame") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    for (int size = 1; size <= 17; ++size) {
      const int root = schedules::has_root(operation) ? size - 1 : 0;
      const auto schedules = all_schedules(algorithm, operation, size, root);
      for (const std::uint32_t credits : {1u, 3u})
        for (const bool in_place : {false, true}) {
          const std::string problem =
              proof::check(schedules, operation, root, {7, 3, credits, in_place, true}).problem;
          INFO(schedules::name_of(algorithm)
               << " " << name_of(operation) << " " << size << " ranks, credits " << credits
               << (in_place ? ", in place" : ""));
          if (exchanges(algorithm) && problem != "")
            CHECK_THAT(problem, Contains("deadlock"));
          else
            CHECK(problem == "");
        }
    }
  });
}

TEST_CASE("every algorithm on several hosts") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    for (int size = 2; size <= most_ranks(); size += size < 12 ? 1 : 7)
      for (const schedules::Hosts& hosts : several_hosts(size)) {
        const int root = schedules::has_root(operation) ? size / 2 : 0;
        const auto schedules = all_schedules(algorithm, operation, size, root, hosts);
        for (const proof::CheckOptions& options :
             {proof::CheckOptions{1, 1, 1}, proof::CheckOptions{9, 4, 1, true}}) {
          INFO(schedules::name_of(algorithm)
               << " " << name_of(operation) << " " << size << " ranks, root " << root);
          INFO(hosts.count() << " hosts of up to " << hosts.most_on_a_host());
          REQUIRE(proof::check(schedules, operation, root, options).problem == "");
        }
      }
  });
}

TEST_CASE("many ranks") {
  for (const int size : {64, 100, 128}) {
    if (size > 64 && testing::few_cases()) break;
    for_each_pair([&](schedules::Algorithm algorithm, Collective operation) {
      const int root = schedules::has_root(operation) ? size / 3 : 0;
      INFO(schedules::name_of(algorithm) << " " << name_of(operation) << " " << size);
      REQUIRE(
          proof::check(all_schedules(algorithm, operation, size, root), operation, root, {6, 4, 1})
              .problem == "");
    });
  }
}

TEST_CASE(
    "all but exchanges and barriers of many tokens at once run where a send waits for its "
    "receive") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    for (const int size : {2, 3, 4, 8, 13}) {
      const std::string problem =
          problem_of(all_schedules(algorithm, operation, size), operation, {8, 4, 0});
      INFO(schedules::name_of(algorithm) << " " << name_of(operation) << " " << size);
      const bool together = algorithm == schedules::Algorithm::two_shot ||
                            algorithm == schedules::Algorithm::two_level;
      if (algorithm == schedules::Algorithm::doubling ||
          algorithm == schedules::Algorithm::pairwise ||
          (operation == Collective::barrier && together))
        CHECK_THAT(problem, Contains("deadlock"));
      else
        CHECK(problem == "");
    }
  });
}

// A step that receives and sends must be able to store what it receives. If it could receive only
// after its send, every rank of a ring would wait for the next one.
TEST_CASE("a ring that cannot stage its receives deadlocks without credits") {
  std::vector<Steps> ranks;
  for (int r = 0; r < 3; ++r) {
    const int next = (r + 1) % 3, previous = (r + 2) % 3;
    ranks.push_back(
        {{.slice = 0, .to = next, .round = 0}, {.slice = 0, .from = previous, .round = 1}});
  }
  const auto ring = make(1, 1, ranks);
  CHECK_THAT(problem_of(ring, Collective::all_reduce, {1, 1, 0}),
             Contains("deadlock") && Contains("waits to send"));
  CHECK_THAT(problem_of(ring, Collective::all_reduce, {1, 1, 1}), !Contains("deadlock"));
}

TEST_CASE("a missing contribution") {
  const auto s = make(1, 2,
                      {{{.slice = 0, .from = 1, .to = 1, .reduce = true, .keep = true, .round = 1},
                        {.slice = 0, .to = 2, .round = 1}},
                       {{.slice = 0, .to = 0}, {.slice = 0, .from = 0, .keep = true, .round = 2}},
                       {{.slice = 0, .from = 0, .keep = true, .round = 2}}});
  CHECK_THAT(problem_of(s, Collective::all_reduce),
             Contains("rank 0 step 0") && Contains("contribution of rank 2 is missing"));
}

TEST_CASE("a doubled contribution") {
  auto s = all_schedules(schedules::Algorithm::star, Collective::all_reduce, 3);
  s[1].steps.insert(s[1].steps.begin(), s[1].steps[0]);
  s[0].steps.insert(s[0].steps.begin(), s[0].steps[0]);
  CHECK_THAT(
      problem_of(s, Collective::all_reduce),
      Contains("rank 0 step 1") && Contains("contribution of rank 1 would be counted twice"));
}

TEST_CASE("a wrong slice") {
  auto s = all_schedules(schedules::Algorithm::ring, Collective::all_reduce, 3);
  std::swap(s[1].steps[1].slice, s[1].steps[2].slice);
  CHECK_THAT(problem_of(s, Collective::all_reduce),
             Contains("wrong slice") && Contains("rank 1 step 1"));
}

TEST_CASE("a block in the wrong place") {
  const auto s = make(
      2, 1,
      {{{.slice = 0, .keep = true},
        {.slice = 1, .to = 1},
        {.slice = 1, .from = 1, .keep = true, .round = 1}},
       {{.slice = 1, .keep = true}, {.slice = 1, .to = 0}, {.slice = 1, .from = 0, .round = 1}}});
  CHECK_THAT(problem_of(s, Collective::all_gather), Contains("no value of this slice"));
}

TEST_CASE("an all_to_all that would send what it has received") {
  auto s = all_schedules(schedules::Algorithm::pairwise, Collective::all_to_all, 2);
  REQUIRE(s[0].steps.size() == 3);
  std::swap(s[0].steps[1],
            s[0].steps[2]);  // rank 0 writes over its block for rank 1 before it sends it
  for (schedules::Schedule& schedule : s) schedule.rounds = 2;
  s[0].steps[2].round = 1;
  s[1].steps[2].round = 2;
  CHECK_THAT(problem_of(s, Collective::all_to_all),
             Contains("rank 1 step 2") && Contains("not the block that its rank has for this one"));
}

TEST_CASE("an all_to_all whose blocks go to the wrong ranks") {
  auto s = all_schedules(schedules::Algorithm::pairwise, Collective::all_to_all, 3);
  for (schedules::Step& step : s[0].steps)
    if (step.to != schedules::no_rank) step.slice = 3 - step.slice;
  CHECK_THAT(problem_of(s, Collective::all_to_all), Contains("wrong slice"));
}

TEST_CASE("blocks that a gather does not deliver, and tokens that it lacks") {
  for (const Collective operation : {Collective::gather, Collective::scatter}) {
    auto s = all_schedules(schedules::Algorithm::ring, operation, 4, 0);
    auto& keeper = s[operation == Collective::gather ? 0 : 2].steps;
    for (schedules::Step& step : keeper)
      if (step.slice == 2) step.keep = false;
    CHECK_THAT(problem_of(s, operation), Contains("never keeps slice 2"));
    auto t = all_schedules(schedules::Algorithm::star, operation, 3, 0);
    for (schedules::Schedule& schedule : t)
      schedule.steps.erase(std::remove_if(schedule.steps.begin(), schedule.steps.end(),
                                          [&](const schedules::Step& step) {
                                            return step.slice == schedule.slices;
                                          }),
                           schedule.steps.end());
    CHECK_THAT(problem_of(t, operation), Contains("is done before rank") && Contains("has begun"));
  }
}

TEST_CASE("a deadlock names who waits for whom") {
  const auto s = make(1, 2,
                      {{{.slice = 0, .from = 1, .to = 1, .reduce = true, .round = 1}},
                       {{.slice = 0, .from = 0, .to = 0, .reduce = true, .round = 1}}});
  CHECK_THAT(problem_of(s, Collective::all_reduce), Contains("not in the round after"));
  auto t = make(1, 1,
                {{{.slice = 1, .from = 1, .round = 1}, {.slice = 1, .to = 1, .round = 1}},
                 {{.slice = 1, .from = 0, .round = 1}, {.slice = 1, .to = 0, .round = 1}}});
  for (schedules::Schedule& schedule : t) schedule.rounds = 2;
  CHECK_FALSE(problem_of(t, Collective::barrier).empty());
  const auto same_round =
      make(1, 1,
           {{{.slice = 0, .to = 1}, {.slice = 0, .from = 1, .keep = true, .round = 1}},
            {{.slice = 0, .to = 0}, {.slice = 0, .from = 0, .keep = true, .round = 1}}});
  CHECK_THAT(problem_of(same_round, Collective::all_reduce, {1, 1, 0}),
             Contains("deadlock: rank 0 step 0 (slice 0 to 1) of segment 0 waits to send; rank 1"));
}

TEST_CASE("an unmatched frame") {
  auto s = all_schedules(schedules::Algorithm::tree, Collective::all_reduce, 5);
  s[2].steps.pop_back();
  CHECK_THAT(problem_of(s, Collective::all_reduce),
             Contains("never receives this frame") || Contains("never sends this frame"));
}

TEST_CASE("a missing keep") {
  auto s = all_schedules(schedules::Algorithm::star, Collective::all_reduce, 3);
  s[2].steps.back().keep = false;
  CHECK(problem_of(s, Collective::all_reduce) == "rank 2 never keeps slice 0");
}

TEST_CASE("a double keep") {
  auto s = all_schedules(schedules::Algorithm::star, Collective::broadcast, 3);
  s[0].steps.insert(s[0].steps.begin(), s[0].steps[0]);
  CHECK_THAT(problem_of(s, Collective::broadcast), Contains("kept twice"));
}

TEST_CASE("a keep of what is not promised") {
  auto s = all_schedules(schedules::Algorithm::star, Collective::reduce, 3);
  s[1].steps.insert(s[1].steps.begin(), schedules::Step{.slice = 0, .keep = true});
  CHECK_THAT(problem_of(s, Collective::reduce), Contains("keeps nothing of this slice"));
}

TEST_CASE("a write over what has been kept") {
  auto s = all_schedules(schedules::Algorithm::star, Collective::all_reduce, 2);
  s[0].steps.push_back({.slice = 0, .to = 1, .round = 1});
  s[1].steps.push_back({.slice = 0, .from = 0, .keep = true, .round = 2});
  CHECK_THAT(problem_of(s, Collective::all_reduce),
             Contains("writes over a value that has been kept"));
}

TEST_CASE("a value that nobody finished") {
  auto s = all_schedules(schedules::Algorithm::star, Collective::all_reduce, 3);
  for (schedules::Step& step : s[0].steps) step.keep = false;
  CHECK_THAT(problem_of(s, Collective::all_reduce), Contains("never finished"));
}

TEST_CASE("an input of another rank that nobody reduces") {
  // Rank 2 passes rank 1's input on, and nobody would multiply it by rank 1's scale.
  const auto s = make(1, 3,
                      {{{.slice = 0, .from = 2, .to = 1, .reduce = true, .keep = true, .round = 2},
                        {.slice = 0, .to = 2, .round = 2}},
                       {{.slice = 0, .to = 2}, {.slice = 0, .from = 0, .keep = true, .round = 3}},
                       {{.slice = 0, .from = 1, .to = 0, .round = 1},
                        {.slice = 0, .from = 0, .keep = true, .round = 3}}});
  CHECK_THAT(problem_of(s, Collective::all_reduce),
             Contains("rank 2 step 0") && Contains("stores another rank's input"));
}

TEST_CASE("another order of summation") {
  // Ranks 0 and 1 each sum all contributions, but not in the same order.
  const auto s = make(1, 2,
                      {{{.slice = 0, .to = 1},
                        {.slice = 0, .from = 1, .reduce = true, .round = 1},
                        {.slice = 0, .from = 2, .to = 2, .reduce = true, .keep = true, .round = 1}},
                       {{.slice = 0, .to = 0},
                        {.slice = 0, .from = 2, .reduce = true, .round = 1},
                        {.slice = 0, .from = 0, .reduce = true, .keep = true, .round = 1}},
                       {{.slice = 0, .to = 0},
                        {.slice = 0, .to = 1},
                        {.slice = 0, .from = 0, .keep = true, .round = 2}}});
  CHECK_THAT(problem_of(s, Collective::all_reduce), Contains("summed in another order"));
}

TEST_CASE("a rank that is done before all have begun") {
  for (const Collective operation : {Collective::reduce, Collective::broadcast}) {
    auto s = all_schedules(schedules::Algorithm::star, operation, 3);
    for (schedules::Schedule& schedule : s)
      schedule.steps.erase(std::remove_if(schedule.steps.begin(), schedule.steps.end(),
                                          [&](const schedules::Step& step) {
                                            return step.slice == schedule.slices;
                                          }),
                           schedule.steps.end());
    CHECK_THAT(problem_of(s, operation), Contains("is done before rank") && Contains("has begun"));
  }
  // Rank 1's token is missing, so the others are done before they know that it has begun.
  auto s = all_schedules(schedules::Algorithm::star, Collective::barrier, 4);
  s[0].steps.erase(s[0].steps.begin());
  s[1].steps.erase(s[1].steps.begin());
  CHECK_THAT(problem_of(s, Collective::barrier), Contains("done before rank 1 has begun"));
}

TEST_CASE("steps that cannot be meant") {
  const auto one = [](schedules::Step step) { return make(1, 2, {{step}, {}}); };
  CHECK_THAT(problem_of(one({.slice = 2, .to = 1}), Collective::all_reduce),
             Contains("no such slice"));
  CHECK_THAT(problem_of(one({.slice = 0, .to = 2}), Collective::all_reduce),
             Contains("no such peer"));
  CHECK_THAT(problem_of(one({.slice = 0, .to = 0}), Collective::all_reduce),
             Contains("no such peer"));
  CHECK_THAT(problem_of(one({.slice = 0, .from = -5, .round = 1}), Collective::all_reduce),
             Contains("no such peer"));
  CHECK_THAT(problem_of(one({.slice = 0, .reduce = true}), Collective::all_reduce),
             Contains("nothing to reduce with"));
  CHECK_THAT(problem_of(one({.slice = 0}), Collective::all_reduce), Contains("does nothing"));
  CHECK_THAT(problem_of(one({.slice = 1, .to = 1, .keep = true}), Collective::barrier),
             Contains("a token"));
  CHECK_THAT(problem_of(one({.slice = 0, .to = 1, .round = 2}), Collective::all_reduce),
             Contains("rounds 1 to 2"));
  CHECK_THAT(problem_of(one({.slice = 0, .from = 1}), Collective::all_reduce),
             Contains("rounds 1 to 2"));
}

TEST_CASE("rounds that run backwards") {
  auto s = all_schedules(schedules::Algorithm::star, Collective::all_reduce, 3);
  s[0].steps[1].round = 0;
  CHECK_FALSE(problem_of(s, Collective::all_reduce).empty());
  s = all_schedules(schedules::Algorithm::star, Collective::all_reduce, 3);
  s[1].steps[0].round = 1;
  CHECK_THAT(problem_of(s, Collective::all_reduce), Contains("not in the round after"));
}

TEST_CASE("ranks that do not agree on slices, and nothing at all") {
  auto s = all_schedules(schedules::Algorithm::ring, Collective::all_reduce, 3);
  s[2].slices = 4;
  CHECK_THAT(problem_of(s, Collective::all_reduce), Contains("rank 2 has 4 slices"));
  CHECK_FALSE(proof::check({}, Collective::all_reduce, 0).ok());
  s = all_schedules(schedules::Algorithm::ring, Collective::all_reduce, 3);
  CHECK_FALSE(proof::check(s, Collective::all_reduce, 3).ok());
  CHECK_FALSE(proof::check(s, Collective::all_reduce, 0, {0, 1, 1}).ok());
}

TEST_CASE("rank order: chain and star sum in the same one, whatever the root") {
  const auto sums = [](schedules::Algorithm algorithm, Collective operation, int size, int root) {
    const proof::CheckReport report =
        proof::check(all_schedules(algorithm, operation, size, root), operation, root,
                     {.segments = 1, .depth = 1, .credits = 1, .expressions = true});
    REQUIRE(report.problem == "");
    return report.expressions;
  };
  using Sums = std::vector<std::string>;
  CHECK(sums(schedules::Algorithm::chain, Collective::all_reduce, 4, 0) ==
        Sums{"(((0 + 1) + 2) + 3)"});
  CHECK(sums(schedules::Algorithm::star, Collective::all_reduce, 4, 0) ==
        Sums{"(((0 + 1) + 2) + 3)"});
  CHECK(sums(schedules::Algorithm::doubling, Collective::all_reduce, 4, 0) ==
        Sums{"((0 + 1) + (2 + 3))"});
  CHECK(sums(schedules::Algorithm::ring, Collective::all_reduce, 3, 0) ==
        Sums{"((0 + 1) + 2)", "((1 + 2) + 0)", "((0 + 2) + 1)"});
  for (int root = 0; root < 4; ++root)
    CHECK(sums(schedules::Algorithm::chain, Collective::reduce, 4, root) ==
          Sums{"(((0 + 1) + 2) + 3)"});
  CHECK(sums(schedules::Algorithm::chain, Collective::reduce_scatter, 3, 0) ==
        Sums(3, "((0 + 1) + 2)"));
}

// SPDX-License-Identifier: Apache-2.0
#include "collectives/plan/planner.h"

#include <algorithm>
#include <set>

#include <rondo/error.h>

#include "catch.h"
#include "collectives/plan/costs.h"
#include "collectives/plan/tuning.h"
#include "support/effort.h"
#include "tests/collectives/all_schedules.h"
#include "transports/transport.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

std::vector<PlanConstants> several_constants() {
  std::vector<PlanConstants> all = {PlanConstants{}};
  for (const auto& [link, reduce] : {std::pair{PlanLinkCosts{1e-6, 8e-11, 5e-7}, 5e-11},
                                     {PlanLinkCosts{5e-5, 1e-8, 3e-6}, 5e-11},
                                     {PlanLinkCosts{1e-5, 1e-9, 0}, 1e-9},
                                     {PlanLinkCosts{0, 1e-9, 0}, 0.0},
                                     {PlanLinkCosts{2e-5, 1e-10, 2e-5}, 1e-9}})
    all.push_back({link, link, reduce});
  return all;
}

// 0, then up to about sixty sizes for each power of ten, to 2^50; few cases: a quarter of them.
std::vector<std::size_t> fine_grid() {
  const double step = testing::few_cases() ? 1.17 : 1.04;
  std::vector<std::size_t> sizes = {0};
  for (double bytes = 1; bytes < 0x1p50; bytes = std::max(bytes * step, bytes + 1))
    sizes.push_back(static_cast<std::size_t>(bytes));
  return sizes;
}

plan::Topology together(int ranks, int cores) {
  return {.ranks = ranks, .ranks_per_host = ranks, .cores_per_host = cores};
}

void require_monotone(Collective operation, const plan::Topology& topology,
                      const PlanConstants& constants, const plan::PlanOptions& options,
                      const std::vector<std::size_t>& sizes) {
  std::set<schedules::Algorithm> left;
  std::optional<schedules::Algorithm> present;
  for (const std::size_t bytes : sizes) {
    const plan::Plan plan = plan::choose_plan(operation, bytes, topology, constants, options);
    if (present != plan.algorithm) {
      INFO(name_of(operation) << " of " << bytes << " bytes over " << topology.ranks
                              << " ranks: " << schedules::name_of(plan.algorithm));
      REQUIRE(left.count(plan.algorithm) == 0);
      if (present) left.insert(*present);
      present = plan.algorithm;
    }
  }
}

}  // namespace

TEST_CASE("an algorithm once left does not come back") {
  const auto sizes = fine_grid();
  for (int o = 0; o < collective_count; ++o)
    for (const int ranks : {2, 3, 4, 5, 7, 8, 12, 16, 33, 64})
      for (const PlanConstants& constants : several_constants())
        for (const int cores : {2, 64})
          if (schedules::has_schedules(static_cast<Collective>(o)))
            require_monotone(static_cast<Collective>(o), together(ranks, cores), constants, {},
                             sizes);
}

TEST_CASE("monotone at every number of ranks, and with options") {
  std::vector<std::size_t> sizes;
  for (std::size_t shift = 0; shift < 44; ++shift)
    sizes.insert(sizes.end(), {std::size_t{1} << shift, std::size_t{3} << shift});
  std::sort(sizes.begin(), sizes.end());
  for (int ranks = 1; ranks <= 64; ++ranks) {
    require_monotone(Collective::all_reduce, together(ranks, 4), {}, {}, sizes);
    require_monotone(Collective::all_reduce, {ranks, 2, (ranks + 1) / 2, 2}, {},
                     {.segment_bytes = 4096}, sizes);
    require_monotone(Collective::reduce, together(ranks, 64), {}, {.depth = 3}, sizes);
    require_monotone(Collective::all_reduce, together(ranks, 64), {}, {.reproducible = true},
                     sizes);
  }
}

TEST_CASE("few hops for tiny messages, the ring for large ones") {
  for (const int ranks : {2, 4, 8, 16})
    CHECK(plan::choose_plan(Collective::all_reduce, 8, together(ranks, 64), {}).algorithm ==
          schedules::Algorithm::doubling);
  const std::size_t large = std::size_t{64} << 20;
  for (int ranks = 2; ranks <= 64; ++ranks)
    CHECK(plan::choose_plan(Collective::all_reduce, large, together(ranks, 64), {}).algorithm ==
          schedules::Algorithm::ring);
  for (int ranks = 2; ranks <= 16; ++ranks)
    CHECK(plan::choose_plan(Collective::all_reduce, large, together(ranks, 2), {}).algorithm ==
          schedules::Algorithm::ring);
}

TEST_CASE("between hosts: few hops, then the fewest bytes on the network") {
  const plan::Topology four{.ranks = 4, .hosts = 4};
  CHECK(plan::choose_plan(Collective::all_reduce, 1024, four, {}).algorithm ==
        schedules::Algorithm::doubling);
  CHECK(plan::choose_plan(Collective::all_reduce, 64 << 10, four, {}).algorithm ==
        schedules::Algorithm::two_shot);
  CHECK(plan::choose_plan(Collective::all_reduce, 64 << 20, four, {}).algorithm ==
        schedules::Algorithm::ring);
  for (const int hosts : {2, 3, 4, 8}) {
    const plan::Topology full{.ranks = 4 * hosts,
                              .hosts = hosts,
                              .ranks_per_host = 4,
                              .cores_per_host = 8,
                              .in_rank_order = true};
    for (const Collective operation :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
      CHECK(plan::choose_plan(operation, 64 << 20, full, {}).algorithm ==
            schedules::Algorithm::two_level);
    const auto seconds = [&](schedules::Algorithm algorithm) {
      return plan::choose_plan(Collective::all_reduce, 64 << 20, full, {}, {.algorithm = algorithm})
          .seconds;
    };
    // bytes: those of a ring between hosts, divided by those of two levels.
    const double ranks = 4 * hosts, bytes = (1 - 1 / ranks) / (1 - 1.0 / hosts);
    CHECK(seconds(schedules::Algorithm::ring) / seconds(schedules::Algorithm::two_level) ==
          Approx(bytes).epsilon(0.1));
  }
}

TEST_CASE("two-shot is for few ranks, two levels for several ranks on several hosts") {
  const auto tries = [](const plan::Topology& topology, schedules::Algorithm algorithm) {
    const auto plans = plan::list_plans(Collective::all_reduce, 1 << 20, topology, {});
    return std::any_of(plans.begin(), plans.end(),
                       [&](const plan::Plan& p) { return p.algorithm == algorithm; });
  };
  CHECK(tries(together(plan::most_two_shot_ranks, 64), schedules::Algorithm::two_shot));
  CHECK_FALSE(tries(together(plan::most_two_shot_ranks + 1, 64), schedules::Algorithm::two_shot));
  CHECK_FALSE(tries(together(8, 8), schedules::Algorithm::two_level));
  CHECK_FALSE(tries({.ranks = 8, .hosts = 8}, schedules::Algorithm::two_level));
  CHECK(tries({.ranks = 8, .hosts = 2, .ranks_per_host = 5}, schedules::Algorithm::two_level));
  const plan::PlanOptions forced{.algorithm = schedules::Algorithm::two_level};
  CHECK(plan::choose_plan(Collective::all_reduce, 8, together(8, 8), {}, forced).algorithm ==
        schedules::Algorithm::two_level);
}

TEST_CASE("no algorithm comes back on several hosts either") {
  const auto sizes = fine_grid();
  for (int o = 0; o < collective_count; ++o) {
    if (!schedules::has_schedules(static_cast<Collective>(o))) continue;
    for (const plan::Topology& topology :
         {plan::Topology{8, 2, 4, 2, true}, plan::Topology{8, 2, 4, 64, false},
          plan::Topology{4, 4, 1, 2, true}, plan::Topology{24, 5, 7, 4, false}})
      for (const PlanConstants& constants : several_constants())
        require_monotone(static_cast<Collective>(o), topology, constants, {}, sizes);
    PlanConstants mixed;
    mixed.host = {1e-6, 5e-11, 2e-7};
    require_monotone(static_cast<Collective>(o), {16, 4, 4, 4, true}, mixed, {}, sizes);
  }
}

TEST_CASE("a large ring takes about the least time that its bytes need") {
  const PlanConstants constants;
  const double bytes = 0x1p30;
  const plan::Plan plan =
      plan::choose_plan(Collective::all_reduce, 1u << 30, together(8, 64), constants);
  const double least = 2 * 7.0 / 8 * bytes * constants.host.seconds_per_byte;
  CHECK(plan.seconds > least);
  CHECK(plan.seconds < 1.5 * least);
}

TEST_CASE("ranks that outnumber cores take longer") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    for (const int ranks : {4, 8, 32})
      for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 26}) {
        const plan::PlanOptions only{.algorithm = algorithm};
        const double alone =
            plan::choose_plan(operation, bytes, together(ranks, ranks), {}, only).seconds;
        const double crowded =
            plan::choose_plan(operation, bytes, together(ranks, 1), {}, only).seconds;
        INFO(schedules::name_of(algorithm)
             << " " << name_of(operation) << " " << ranks << " " << bytes);
        if (operation != Collective::barrier || bytes == 8) CHECK(crowded > 0);
        if (bytes > 8 && operation != Collective::barrier) CHECK(crowded > alone);
      }
  });
}

TEST_CASE("predictions grow with bytes and are never negative") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    double before = 0;
    for (const std::size_t bytes : fine_grid()) {
      const double seconds =
          plan::choose_plan(operation, bytes, together(7, 2), {}, {.algorithm = algorithm}).seconds;
      REQUIRE(seconds >= before);
      before = seconds;
    }
  });
}

TEST_CASE("segments and depth keep their promises") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    for (const int ranks : {1, 2, 3, 8, 64})
      for (const std::size_t bytes : fine_grid()) {
        for (const plan::PlanOptions& options :
             {plan::PlanOptions{.algorithm = algorithm},
              plan::PlanOptions{.algorithm = algorithm, .segment_bytes = 64, .depth = 5},
              plan::PlanOptions{.algorithm = algorithm, .segment_bytes = std::size_t{1} << 40},
              plan::PlanOptions{.algorithm = algorithm, .staging_bytes = std::size_t{1} << 20}}) {
          const plan::Plan plan =
              plan::choose_plan(operation, bytes, together(ranks, 2), {}, options);
          INFO(schedules::name_of(algorithm)
               << " " << name_of(operation) << " " << ranks << " ranks " << bytes
               << " bytes, segment " << plan.segment_bytes << " depth " << plan.depth);
          REQUIRE(plan.algorithm == algorithm);
          REQUIRE(plan.segment_bytes >= 1);
          REQUIRE(plan.depth >= 1);
          REQUIRE(bytes / plan.segment_bytes < std::uint64_t{1} << 32);
          // For these the limit on the number of segments comes before the limit on memory.
          const bool huge = bytes > std::size_t{1} << 40;
          if (plan::needs_staging(operation) && !huge)
            REQUIRE(plan.segment_bytes * static_cast<std::size_t>(plan.depth) <=
                    options.staging_bytes);
          if (algorithm == schedules::Algorithm::doubling && operation == Collective::all_reduce &&
              !huge)
            REQUIRE(plan.segment_bytes <= transports::eager_bytes);
          if (algorithm == schedules::Algorithm::pairwise && !huge)
            REQUIRE(plan.segment_bytes / static_cast<std::size_t>(ranks) <=
                    transports::eager_bytes);
          if (options.depth != 0) REQUIRE(plan.depth == options.depth);
          if (options.segment_bytes == 64 && bytes < std::size_t{1} << 36)
            REQUIRE(plan.segment_bytes == 64);
        }
      }
  });
}

TEST_CASE("reproducible plans sum in rank order") {
  for (int o = 0; o < collective_count; ++o) {
    const auto operation = static_cast<Collective>(o);
    if (!schedules::has_schedules(operation)) continue;
    for (const plan::Plan& plan :
         plan::list_plans(operation, 1 << 20, together(5, 2), {}, {.reproducible = true}))
      CHECK(plan::is_reproducible(plan.algorithm, operation));
  }
  CHECK(plan::choose_plan(Collective::all_reduce, 1 << 26, together(8, 64), {},
                          {.reproducible = true})
            .algorithm == schedules::Algorithm::chain);
  CHECK(plan::choose_plan(Collective::reduce, 8, together(8, 64), {}, {.reproducible = true})
            .algorithm == schedules::Algorithm::chain);
}

TEST_CASE("every candidate is listed, the chosen one first") {
  const auto plans = plan::list_plans(Collective::all_reduce, 1 << 20, together(4, 64), {});
  REQUIRE(plans.size() == 7);
  CHECK(plans[0].algorithm ==
        plan::choose_plan(Collective::all_reduce, 1 << 20, together(4, 64), {}).algorithm);
  for (std::size_t i = 2; i < plans.size(); ++i) CHECK(plans[i - 1].seconds <= plans[i].seconds);
}

TEST_CASE("an algorithm that does not exist for the operation") {
  CHECK_THROWS_WITH(
      plan::choose_plan(Collective::broadcast, 8, together(4, 4), {},
                        {.algorithm = schedules::Algorithm::doubling}),
      "algorithm doubling does not exist for broadcast; possible: ring, tree, star, two_level");
  CHECK_THROWS_WITH(
      plan::choose_plan(Collective::all_reduce, 8, together(4, 4), {},
                        {.algorithm = schedules::Algorithm::ring, .reproducible = true}),
      Contains(
          "ring does not exist for all_reduce with reproducible results; possible: star, chain"));
  try {
    plan::list_plans(Collective::all_gather, 8, together(4, 4), {},
                     {.algorithm = schedules::Algorithm::tree});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::unsupported);
  }
}

TEST_CASE("a topology that makes no sense is taken as the nearest that does") {
  for (const plan::Topology& topology : {plan::Topology{0, 0, 0, 0}, plan::Topology{-3, -1, -1, -1},
                                         plan::Topology{4, 9, 9, 0}, plan::Topology{4, 0, 0, 2}}) {
    const plan::Plan plan = plan::choose_plan(Collective::all_reduce, 1 << 20, topology, {});
    CHECK(plan.depth >= 1);
    CHECK(plan.segment_bytes >= 1);
    CHECK(plan.seconds >= 0);
  }
}

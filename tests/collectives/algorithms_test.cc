// SPDX-License-Identifier: Apache-2.0
//
// The tables of algorithms and of their costs are complete, and agree.
#include "collectives/schedules/algorithms.h"

#include <algorithm>

#include "catch.h"
#include "collectives/plan/formulas.h"
#include "collectives/plan/planner.h"
#include "collectives/proof/checker.h"
#include "tests/collectives/all_schedules.h"

namespace rondo {
namespace {

using schedules::Algorithm;

TEST_CASE("every row of the algorithms builds schedules that are right") {
  for (const schedules::Implementation& row : schedules::implementations) {
    CAPTURE(schedules::name_of(row.algorithm), name_of(row.operation));
    REQUIRE(row.build != nullptr);
    CHECK(schedules::supports(row.algorithm, row.operation));
    CHECK(schedules::without_counts(row.operation) == row.operation);
    for (int size = 2; size <= 5; ++size)
      for (const int root : {0, size - 1}) {
        if (root != 0 && !schedules::has_root(row.operation)) continue;
        for (const schedules::Hosts& hosts : several_hosts(size)) {
          const auto made = all_schedules(row.algorithm, row.operation, size, root, hosts);
          CHECK(proof::check(made, row.operation, root, {}).problem == "");
        }
      }
  }
}

TEST_CASE("no pair has two rows, and every other pair has none") {
  std::size_t pairs = 0;
  for (int a = 0; a < schedules::algorithm_count; ++a)
    for (int o = 0; o < collective_count; ++o) {
      const auto algorithm = static_cast<Algorithm>(a);
      const auto operation = static_cast<Collective>(o);
      const auto rows = std::count_if(
          schedules::implementations.begin(), schedules::implementations.end(),
          [&](const auto& r) { return r.algorithm == algorithm && r.operation == operation; });
      CHECK(rows <= 1);
      pairs += static_cast<std::size_t>(rows);
      if (!schedules::has_counts(operation))
        CHECK(schedules::supports(algorithm, operation) == (rows == 1));
    }
  CHECK(pairs == schedules::implementations.size());
  CHECK(!schedules::supports(static_cast<Algorithm>(99), Collective::all_reduce));
  CHECK(!schedules::supports(Algorithm::ring, static_cast<Collective>(99)));
}

TEST_CASE("every row has a cost, and sums only where the operation does") {
  const plan::Topology topologies[] = {{.ranks = 2, .ranks_per_host = 2},
                                       {.ranks = 6, .hosts = 6, .ranks_per_host = 1},
                                       {.ranks = 12, .hosts = 3, .ranks_per_host = 4},
                                       {.ranks = 7, .hosts = 3, .ranks_per_host = 3}};
  for (const schedules::Implementation& row : schedules::implementations) {
    CAPTURE(schedules::name_of(row.algorithm), name_of(row.operation));
    const plan::CostRow& cost = plan::cost_row(row.algorithm, row.operation);
    CHECK((cost.algorithm == row.algorithm && cost.operation == row.operation));
    for (const plan::Topology& topology : topologies) {
      CAPTURE(topology.ranks, topology.hosts);
      const plan::Shape shape = plan::shape_of(row.algorithm, row.operation, topology);
      CHECK(shape.host.hops + shape.network.hops >= 1);
      CHECK(shape.frames >= topology.ranks - 1);
      CHECK((shape.network.hops > 0) == (topology.hosts > 1));
      CHECK((shape.bytes > 0) == (row.operation != Collective::barrier));
      CHECK((shape.reduce > 0) == schedules::is_reducing(row.operation));
      CHECK((shape.path_reduce > 0) == schedules::is_reducing(row.operation));
    }
  }
}

TEST_CASE("which algorithms sum in rank order") {
  const auto ordered = [](Collective operation) {
    std::vector<Algorithm> found;
    for (int a = 0; a < schedules::algorithm_count; ++a)
      if (const auto algorithm = static_cast<Algorithm>(a);
          schedules::supports(algorithm, operation) && plan::is_reproducible(algorithm, operation))
        found.push_back(algorithm);
    return found;
  };
  CHECK(ordered(Collective::all_reduce) == std::vector{Algorithm::star, Algorithm::chain});
  CHECK(ordered(Collective::reduce) == std::vector{Algorithm::chain});
  CHECK(ordered(Collective::reduce_scatter) == std::vector{Algorithm::chain});
  CHECK(ordered(Collective::reduce_scatter_v) == std::vector{Algorithm::chain});
  CHECK(ordered(Collective::gather) == std::vector{Algorithm::ring, Algorithm::star});
}

}  // namespace
}  // namespace rondo

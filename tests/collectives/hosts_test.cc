// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/hosts.h"

#include <algorithm>
#include <vector>

#include "catch.h"
#include "collectives/plan/planner.h"

using namespace rondo;

namespace {

std::vector<int> on(const schedules::Hosts& hosts, int host) {
  const auto ranks = hosts.on(host);
  return {ranks.begin(), ranks.end()};
}

}  // namespace

TEST_CASE("without a list all ranks are on one host") {
  const schedules::Hosts hosts;
  CHECK(hosts.count() == 1);
  CHECK(hosts.ranks() == 0);
  CHECK(hosts.host(7) == 0);
  CHECK(hosts.local(7) == 7);
  CHECK(hosts.rank_at(7) == 7);
  CHECK(hosts.place_of(7) == 7);
  CHECK(hosts.on(0).empty());
  CHECK(hosts.in_rank_order());
  CHECK(schedules::Hosts(std::vector<int>{}) == hosts);
}

TEST_CASE("hosts are counted by their lowest rank, whatever they are called") {
  const schedules::Hosts hosts(std::vector<int>{9, 4, 9, 4, 4});
  CHECK(hosts == schedules::Hosts(std::vector<int>{0, 1, 0, 1, 1}));
  CHECK(hosts.count() == 2);
  CHECK(hosts.ranks() == 5);
  CHECK(hosts.most_on_a_host() == 3);
  CHECK(on(hosts, 0) == std::vector<int>{0, 2});
  CHECK(on(hosts, 1) == std::vector<int>{1, 3, 4});
  CHECK_FALSE(hosts.in_rank_order());
  CHECK(hosts.local(4) == 2);
  CHECK(hosts.place_of(1) == 2);
  for (int rank = 0; rank < 5; ++rank) {
    CHECK(hosts.rank_at(hosts.place_of(rank)) == rank);
    CHECK(on(hosts, hosts.host(rank))[static_cast<std::size_t>(hosts.local(rank))] == rank);
  }
}

TEST_CASE("hosts in blocks keep the order of the ranks") {
  const schedules::Hosts hosts = schedules::Hosts::in_blocks(std::vector<int>{3, 1, 2});
  CHECK(hosts == schedules::Hosts(std::vector<int>{0, 0, 0, 1, 2, 2}));
  CHECK(hosts.in_rank_order());
  CHECK(hosts.host(5) == 2);
  CHECK(schedules::Hosts::in_blocks(std::vector<int>{1, 1, 1}).most_on_a_host() == 1);
}

TEST_CASE("a topology of hosts") {
  const plan::Topology two =
      plan::topology_of(schedules::Hosts(std::vector<int>{0, 1, 0, 1, 0}), 5, 16);
  CHECK(two.ranks == 5);
  CHECK(two.hosts == 2);
  CHECK(two.ranks_per_host == 3);
  CHECK(two.cores_per_host == 16);
  CHECK_FALSE(two.in_rank_order);
  const plan::Topology one = plan::topology_of({}, 8, 2);
  CHECK(one.hosts == 1);
  CHECK(one.ranks_per_host == 8);
  CHECK(one.in_rank_order);
}

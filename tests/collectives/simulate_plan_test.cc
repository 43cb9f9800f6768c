// SPDX-License-Identifier: Apache-2.0
//
// The simulator through the public header.
#include <rondo/error.h>
#include <rondo/plan.h>

#include <functional>

#include "catch.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

SimulationQuery query(int hosts, std::uint64_t bytes, std::string algorithm = {}) {
  SimulationQuery q;
  q.bytes = bytes;
  q.algorithm = std::move(algorithm);
  q.hosts.hosts = hosts;
  return q;
}

}  // namespace

TEST_CASE("a simulation through the public header") {
  SimulationQuery q = query(4, 4 << 20, "ring");
  q.hosts.link_bytes_per_s = 119e6;
  const Simulation s = simulate_plan(q);
  CHECK(s.algorithm == "ring");
  CHECK(s.busiest_link_bytes == 6u << 20);
  CHECK(s.link_bytes == 24u << 20);
  CHECK(s.seconds >= static_cast<double>(6 << 20) / 119e6);
  CHECK(s.seconds == Approx(s.predicted_seconds).epsilon(0.1));
  CHECK(s.busiest_link_share > 0.95);
  CHECK(s.first_done_seconds <= s.seconds);
  CHECK_FALSE(simulate_plan(query(4, 4 << 20)).algorithm.empty());
  CHECK(simulate_plan(query(1, 4 << 20)).seconds == 0);
}

TEST_CASE("stragglers are drawn on the seed") {
  SimulationQuery q = query(50, 1 << 16, "tree");
  q.hosts.ranks_per_host = 2;
  q.stragglers = {.count = 5, .factor = 4, .delay_s = 1e-3, .seed = 7};
  const Simulation first = simulate_plan(q), again = simulate_plan(q);
  CHECK(first.stragglers.size() == 5);
  CHECK(first.stragglers == again.stragglers);
  CHECK(first.seconds == again.seconds);
  CHECK(first.critical_rank == again.critical_rank);
  q.stragglers.seed = 8;
  CHECK(simulate_plan(q).stragglers != first.stragglers);
  q.stragglers.hosts = true;
  for (const int host : simulate_plan(q).stragglers) CHECK(host < 50);
  q.stragglers = {};
  CHECK(simulate_plan(q).seconds < first.seconds);
}

TEST_CASE("a simulation of what cannot be is refused with what is possible") {
  const auto refused = [](const std::function<void(SimulationQuery&)>& spoil,
                          const std::string& message) {
    SimulationQuery q = query(4, 1024, "ring");
    spoil(q);
    CHECK_THROWS_WITH(simulate_plan(q), Contains(message));
  };
  refused([](auto& q) { q.hosts.hosts = 0; }, "hosts is 0; possible are 1 to");
  refused([](auto& q) { q.hosts.ranks_per_host = 2'000'000'000; }, "ranks per host is 2000000000");
  refused([](auto& q) { q.hosts.link_bytes_per_s = 0; }, "link rate is 0");
  refused([](auto& q) { q.hosts.link_latency_s = std::nan(""); }, "link latency is nan");
  refused([](auto& q) { q.hosts.frame_s = -1; }, "frame cost is -1");
  refused([](auto& q) { q.hosts.cores = -1; }, "cores is -1");
  refused([](auto& q) { q.stragglers.count = 5; }, "stragglers is 5; possible are 0 to 4");
  refused([](auto& q) { q.stragglers.factor = 0.5; }, "straggler factor is 0.5");
  refused([](auto& q) { q.algorithm = "circle"; }, "algorithm is 'circle'");
  refused([](auto& q) { q.operation = Collective::barrier; }, "does not exist for barrier");
  refused([](auto& q) { q.root = 4; }, "root is 4");
  refused([](auto& q) { q.depth = -1; }, "depth is -1");
  refused([](auto& q) { q.bytes = ~std::uint64_t{0}; }, "bytes is");
}

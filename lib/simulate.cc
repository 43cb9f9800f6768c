// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include <rondo/error.h>
#include <rondo/options.h>
#include <rondo/plan.h>

#include "base/mix.h"
#include "collectives/plan/planner.h"
#include "collectives/plan/simulator.h"
#include "collectives/schedules/call.h"
#include "lib/plan_checks.h"
#include "lib/settings/settings.h"

namespace rondo {

namespace {

constexpr int most_simulated_ranks = 1'000'000;
constexpr double longest_time = 1e3, highest_rate = 1e15, most_factor = 1e6;

void require_number(std::string_view name, double value, double least, double most) {
  if (!(value >= least && value <= most))
    throw Error(Errc::invalid_argument,
                fmt::format("{} is {:g}; possible are {:g} to {:g}", name, value, least, most));
}

void check_hosts(const SimulatedHosts& h) {
  lib::require_between("hosts", h.hosts, 1, most_simulated_ranks);
  lib::require_between("ranks per host", h.ranks_per_host, 1, most_simulated_ranks / h.hosts);
  lib::require_between("cores per host", h.cores_per_host, 0, most_simulated_ranks);
  lib::require_between("cores", h.cores, 0, most_simulated_ranks);
  require_number("link latency", h.link_latency_s, 0, longest_time);
  require_number("host latency", h.host_latency_s, 0, longest_time);
  require_number("link rate", h.link_bytes_per_s, 1, highest_rate);
  require_number("host rate", h.host_bytes_per_s, 1, highest_rate);
  require_number("reduction rate", h.reduce_bytes_per_s, 1, highest_rate);
  require_number("frame cost", h.frame_s, 0, longest_time);
  require_number("byte cost", h.byte_s, 0, 1);
}

void check_stragglers(const SimulatedStragglers& s, const SimulatedHosts& h) {
  lib::require_between("stragglers", s.count, 0, s.hosts ? h.hosts : h.hosts * h.ranks_per_host);
  require_number("straggler factor", s.factor, 1, most_factor);
  require_number("straggler delay", s.delay_s, 0, longest_time);
}

// Draws without <random>, whose distributions differ between standard libraries.
std::vector<int> draw(int count, int from, std::uint64_t seed) {
  base::SplitMix64 random(seed);
  std::vector<int> all(static_cast<std::size_t>(from));
  std::iota(all.begin(), all.end(), 0);
  const auto wanted = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < wanted; ++i)
    std::swap(all[i], all[i + random.next() % (all.size() - i)]);
  all.resize(wanted);
  std::sort(all.begin(), all.end());
  return all;
}

plan::Fabric fabric_of(const SimulatedHosts& h) {
  return {.hosts = h.hosts,
          .ranks_per_host = h.ranks_per_host,
          .in_turns = h.in_turns,
          .inside = {h.host_latency_s, 1 / h.host_bytes_per_s},
          .between = {h.link_latency_s, 1 / h.link_bytes_per_s},
          .frame_s = h.frame_s,
          .byte_s = h.byte_s,
          .reduce_seconds_per_byte = 1 / h.reduce_bytes_per_s,
          .burst_bytes = h.link_burst_bytes,
          .cores_per_host = h.cores_per_host,
          .cores = h.cores};
}

// Returns what ranks would measure on these hosts: the time of a frame from end to end, and the
// slowest thing that its bytes pass.
PlanConstants constants_of(const SimulatedHosts& h) {
  const auto link = [&](double latency_s, double bytes_per_s) {
    return PlanLinkCosts{latency_s + 2 * h.frame_s, std::max(1 / bytes_per_s, 2 * h.byte_s),
                         h.frame_s};
  };
  return {.host = link(h.host_latency_s, h.host_bytes_per_s),
          .network = link(h.link_latency_s, h.link_bytes_per_s),
          .reduce_seconds_per_byte = 1 / h.reduce_bytes_per_s};
}

plan::Plan plan_of(const SimulationQuery& query) {
  const SimulatedHosts& h = query.hosts;
  plan::Topology topology{
      .ranks = h.hosts * h.ranks_per_host,
      .hosts = h.hosts,
      .ranks_per_host = h.ranks_per_host,
      .cores_per_host = h.cores_per_host > 0 ? h.cores_per_host : h.ranks_per_host,
      .in_rank_order = !h.in_turns || h.hosts == 1 || h.ranks_per_host == 1};
  plan::PlanOptions options{.algorithm = std::nullopt,
                            .segment_bytes = query.segment_bytes,
                            .depth = query.depth,
                            .staging_bytes = settings::default_staging_bytes / lane_count,
                            .reproducible = query.reproducible};
  if (!query.algorithm.empty())
    options.algorithm = lib::find_algorithm(query.algorithm, query.operation);
  return plan::choose_plan(query.operation, query.bytes, topology, constants_of(h), options);
}

}  // namespace

Simulation simulate_plan(const SimulationQuery& query) {
  check_hosts(query.hosts);
  check_stragglers(query.stragglers, query.hosts);
  const int ranks = query.hosts.hosts * query.hosts.ranks_per_host;
  lib::require_between("root", query.root, 0, ranks - 1);
  lib::require_between("depth", query.depth, 0, most_simulated_ranks);
  lib::require_between("bytes",
                       static_cast<std::int64_t>(std::min<std::uint64_t>(query.bytes, INT64_MAX)),
                       0, std::int64_t{1} << 50);
  const plan::Plan plan = plan_of(query);
  plan::SimulatedCall call{.operation = query.operation,
                           .algorithm = plan.algorithm,
                           .root = query.root,
                           .bytes = query.bytes,
                           .segment_bytes = plan.segment_bytes};
  // Like a communicator: no more segments in flight than there are.
  const std::uint64_t segments = query.bytes / std::max<std::size_t>(1, plan.segment_bytes) + 1;
  call.depth = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::max(1, plan.depth)), 1, segments));
  const SimulatedStragglers& s = query.stragglers;
  const std::vector<int> slow = draw(s.count, s.hosts ? query.hosts.hosts : ranks, s.seed);
  std::vector<plan::Straggler> stragglers;
  stragglers.reserve(slow.size());
  for (const int one : slow)
    stragglers.push_back({.rank = s.hosts ? schedules::no_rank : one,
                          .host = s.hosts ? one : -1,
                          .factor = s.factor,
                          .delay_s = s.delay_s});
  return {plan::simulate(call, fabric_of(query.hosts), stragglers),
          std::string(schedules::name_of(plan.algorithm)),
          call.segment_bytes,
          static_cast<int>(call.depth),
          plan.seconds,
          slow};
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/schedule.h"

#include <cassert>

#include "collectives/schedules/algorithms.h"
#include "collectives/schedules/call.h"

namespace rondo::schedules {

namespace {

// One rank: the output is the input.
Schedule alone(Collective operation) {
  Schedule schedule;
  if (operation != Collective::barrier) schedule.steps.push_back({.slice = 0, .keep = true});
  return schedule;
}

// Renames ranks, and slices that are blocks: rank i of the algorithm is the rank at place i of the
// hosts' order.
Schedule in_host_order(Schedule schedule, Collective operation, const Hosts& hosts) {
  for (Step& step : schedule.steps) {
    if (step.from != no_rank) step.from = hosts.rank_at(step.from);
    if (step.to != no_rank) step.to = hosts.rank_at(step.to);
    if (is_blocked(operation) && step.slice < schedule.slices)
      step.slice = number(hosts.rank_at(static_cast<int>(step.slice)));
  }
  return schedule;
}

}  // namespace

std::string_view name_of(Algorithm algorithm) noexcept {
  const auto index = static_cast<std::size_t>(algorithm);
  return index < algorithms.size() ? algorithms[index].name : "unknown";
}

std::string algorithm_names() {
  std::string names;
  for (const AlgorithmTraits& each : algorithms)
    names.append(names.empty() ? "" : ", ").append(each.name);
  return names;
}

std::optional<Algorithm> parse_algorithm(std::string_view text) noexcept {
  for (const AlgorithmTraits& each : algorithms)
    if (each.name == text) return each.algorithm;
  return std::nullopt;
}

bool has_schedules(Collective operation) noexcept {
  return !base::traits_of(operation).messages;
}

bool supports(Algorithm algorithm, Collective operation) noexcept {
  return implementation_index(algorithm, operation) != no_implementation;
}

Schedule make_schedule(Algorithm algorithm, Collective operation, int rank, int size, int root,
                       const Hosts& hosts) {
  assert(supports(algorithm, operation) && rank >= 0 && rank < size && root >= 0 && root < size);
  assert(hosts.ranks() == 0 || hosts.ranks() == size);
  if (size == 1) return alone(operation);
  const std::size_t index = implementation_index(algorithm, operation);
  if (index == no_implementation) return {};
  const Implementation& row = implementations[index];
  if (hosts.in_rank_order() || !algorithms[static_cast<std::size_t>(algorithm)].host_by_host)
    return row.build({.rank = rank, .size = size, .root = root, .hosts = hosts});
  const Hosts in_order;
  return in_host_order(row.build({.rank = hosts.place_of(rank),
                                  .size = size,
                                  .root = hosts.place_of(root),
                                  .hosts = in_order}),
                       operation, hosts);
}

}  // namespace rondo::schedules

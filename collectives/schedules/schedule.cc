// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/schedule.h"

#include <cassert>

#include "collectives/schedules/call.h"
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

namespace {

constexpr std::string_view names[algorithm_count] = {"ring",      "tree",     "star",    "doubling",
                                                     "chain",     "pairwise", "halving", "two_shot",
                                                     "two_level", "direct"};

// Alone: what must come out is what went in.
Schedule alone(Collective operation) {
  Schedule schedule;
  if (operation != Collective::barrier) schedule.steps.push_back({.slice = 0, .keep = true});
  return schedule;
}

Schedule make_ring(Collective operation, int rank, int size, int root) {
  switch (operation) {
    case Collective::all_reduce:
      return ring_all_reduce(rank, size);
    case Collective::reduce:
      return ring_reduce(rank, size, root);
    case Collective::broadcast:
      return ring_broadcast(rank, size, root);
    case Collective::all_gather:
      return ring_all_gather(rank, size);
    case Collective::reduce_scatter:
      return ring_reduce_scatter(rank, size);
    case Collective::gather:
      return ring_gather(rank, size, root);
    case Collective::scatter:
      return ring_scatter(rank, size, root);
    default:
      break;
  }
  return {};
}

Schedule make_tree(Collective operation, int rank, int size, int root) {
  switch (operation) {
    case Collective::all_reduce:
      return tree_all_reduce(rank, size);
    case Collective::reduce:
      return tree_reduce(rank, size, root);
    case Collective::broadcast:
      return tree_broadcast(rank, size, root);
    case Collective::barrier:
      return tree_barrier(rank, size);
    default:
      break;
  }
  return {};
}

Schedule make_star(Collective operation, int rank, int size, int root) {
  switch (operation) {
    case Collective::all_reduce:
      return star_all_reduce(rank, size);
    case Collective::reduce:
      return star_reduce(rank, size, root);
    case Collective::broadcast:
      return star_broadcast(rank, size, root);
    case Collective::all_gather:
      return star_all_gather(rank, size);
    case Collective::reduce_scatter:
      return star_reduce_scatter(rank, size);
    case Collective::barrier:
      return star_barrier(rank, size);
    case Collective::gather:
      return star_gather(rank, size, root);
    case Collective::scatter:
      return star_scatter(rank, size, root);
    default:
      break;
  }
  return {};
}

Schedule make_chain(Collective operation, int rank, int size, int root) {
  if (operation == Collective::all_reduce) return chain_all_reduce(rank, size);
  if (operation == Collective::reduce) return chain_reduce(rank, size, root);
  return chain_reduce_scatter(rank, size);
}

Schedule make_halving(Collective operation, int rank, int size) {
  if (operation == Collective::all_reduce) return halving_all_reduce(rank, size);
  if (operation == Collective::all_gather) return halving_all_gather(rank, size);
  return halving_reduce_scatter(rank, size);
}

Schedule make_two_shot(Collective operation, int rank, int size) {
  if (operation == Collective::all_reduce) return two_shot_all_reduce(rank, size);
  if (operation == Collective::all_gather) return two_shot_all_gather(rank, size);
  if (operation == Collective::reduce_scatter) return two_shot_reduce_scatter(rank, size);
  return two_shot_barrier(rank, size);
}

Schedule make_two_level(Collective operation, int rank, int size, int root, const Hosts& hosts) {
  if (operation == Collective::reduce) return two_level_reduce(rank, size, root, hosts);
  if (operation == Collective::broadcast) return two_level_broadcast(rank, size, root, hosts);
  if (hosts.count() == 1) return make_two_shot(operation, rank, size);
  if (operation == Collective::all_reduce) return two_level_all_reduce(rank, size, hosts);
  if (operation == Collective::all_gather) return two_level_all_gather(rank, size, hosts);
  if (operation == Collective::reduce_scatter) return two_level_reduce_scatter(rank, size, hosts);
  return two_level_barrier(rank, size, hosts);
}

// In host order the ranks stand in other places: what an algorithm calls rank i is the rank at
// place i.
Schedule in_host_order(Schedule schedule, Collective operation, const Hosts& hosts) {
  for (Step& step : schedule.steps) {
    if (step.from != no_rank) step.from = hosts.rank_at(step.from);
    if (step.to != no_rank) step.to = hosts.rank_at(step.to);
    if (is_blocked(operation) && step.slice < schedule.slices)
      step.slice = number(hosts.rank_at(static_cast<int>(step.slice)));
  }
  return schedule;
}

bool minds_neighbours(Algorithm algorithm) {
  return algorithm == Algorithm::ring || algorithm == Algorithm::tree ||
         algorithm == Algorithm::doubling || algorithm == Algorithm::halving;
}

}  // namespace

std::string_view name_of(Algorithm algorithm) noexcept {
  const auto index = static_cast<std::size_t>(algorithm);
  return index < algorithm_count ? names[index] : "unknown";
}

std::string_view algorithm_names() noexcept {
  return "ring, tree, star, doubling, chain, pairwise, halving, two_shot, two_level, direct";
}

std::optional<Algorithm> parse_algorithm(std::string_view text) noexcept {
  for (int i = 0; i < algorithm_count; ++i)
    if (names[i] == text) return static_cast<Algorithm>(i);
  return std::nullopt;
}

bool has_schedules(Collective operation) noexcept {
  return !base::traits_of(operation).messages;
}

bool supports(Algorithm algorithm, Collective operation) noexcept {
  if (!has_schedules(operation)) return false;
  operation = without_counts(operation);
  if (operation == Collective::all_to_all || algorithm == Algorithm::pairwise)
    return operation == Collective::all_to_all && algorithm == Algorithm::pairwise;
  switch (algorithm) {
    case Algorithm::ring:
      return operation != Collective::barrier;
    case Algorithm::tree:
      return !is_blocked(operation);
    case Algorithm::star:
      return true;
    case Algorithm::doubling:
      return operation == Collective::all_reduce || operation == Collective::barrier;
    case Algorithm::chain:
      return operation == Collective::all_reduce || operation == Collective::reduce ||
             operation == Collective::reduce_scatter;
    case Algorithm::halving:
      return operation == Collective::all_reduce || operation == Collective::all_gather ||
             operation == Collective::reduce_scatter;
    case Algorithm::two_shot:
      return operation == Collective::all_reduce || operation == Collective::all_gather ||
             operation == Collective::reduce_scatter || operation == Collective::barrier;
    case Algorithm::two_level:
      return operation <= Collective::barrier;
    case Algorithm::pairwise:
    case Algorithm::direct:
      break;
  }
  return false;
}

Schedule make_schedule(Algorithm algorithm, Collective operation, int rank, int size, int root,
                       const Hosts& hosts) {
  assert(supports(algorithm, operation) && rank >= 0 && rank < size && root >= 0 && root < size);
  assert(hosts.ranks() == 0 || hosts.ranks() == size);
  if (size == 1) return alone(operation);
  operation = without_counts(operation);
  if (!hosts.in_rank_order() && minds_neighbours(algorithm))
    return in_host_order(
        make_schedule(algorithm, operation, hosts.place_of(rank), size, hosts.place_of(root)),
        operation, hosts);
  switch (algorithm) {
    case Algorithm::ring:
      return make_ring(operation, rank, size, root);
    case Algorithm::tree:
      return make_tree(operation, rank, size, root);
    case Algorithm::star:
      return make_star(operation, rank, size, root);
    case Algorithm::doubling:
      return operation == Collective::barrier ? doubling_barrier(rank, size)
                                              : doubling_all_reduce(rank, size);
    case Algorithm::chain:
      return make_chain(operation, rank, size, root);
    case Algorithm::pairwise:
      return pairwise_all_to_all(rank, size);
    case Algorithm::halving:
      return make_halving(operation, rank, size);
    case Algorithm::two_shot:
      return make_two_shot(operation, rank, size);
    case Algorithm::two_level:
      return make_two_level(operation, rank, size, root,
                            hosts.ranks() == 0 ? Hosts::in_blocks({&size, 1}) : hosts);
    case Algorithm::direct:
      break;
  }
  return {};
}

}  // namespace rondo::schedules

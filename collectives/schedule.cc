// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedule.h"

#include <cassert>

#include "collectives/schedules.h"

namespace rondo {

namespace {

constexpr std::string_view names[algorithm_count] = {"ring", "tree", "star", "doubling", "chain"};

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
    case Collective::barrier:
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
    case Collective::all_gather:
    case Collective::reduce_scatter:
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
  }
  return {};
}

Schedule make_chain(Collective operation, int rank, int size, int root) {
  if (operation == Collective::all_reduce) return chain_all_reduce(rank, size);
  if (operation == Collective::reduce) return chain_reduce(rank, size, root);
  return chain_reduce_scatter(rank, size);
}

}  // namespace

std::string_view name_of(Algorithm algorithm) noexcept {
  const auto index = static_cast<std::size_t>(algorithm);
  return index < algorithm_count ? names[index] : "unknown";
}

std::optional<Algorithm> parse_algorithm(std::string_view text) noexcept {
  for (int i = 0; i < algorithm_count; ++i)
    if (names[i] == text) return static_cast<Algorithm>(i);
  return std::nullopt;
}

bool supports(Algorithm algorithm, Collective operation) noexcept {
  switch (algorithm) {
    case Algorithm::ring:
      return operation != Collective::barrier;
    case Algorithm::tree:
      return operation != Collective::all_gather && operation != Collective::reduce_scatter;
    case Algorithm::star:
      return true;
    case Algorithm::doubling:
      return operation == Collective::all_reduce || operation == Collective::barrier;
    case Algorithm::chain:
      return operation == Collective::all_reduce || operation == Collective::reduce ||
             operation == Collective::reduce_scatter;
  }
  return false;
}

Schedule make_schedule(Algorithm algorithm, Collective operation, int rank, int size, int root) {
  assert(supports(algorithm, operation) && rank >= 0 && rank < size && root >= 0 && root < size);
  if (size == 1) return alone(operation);
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
  }
  return {};
}

}  // namespace rondo

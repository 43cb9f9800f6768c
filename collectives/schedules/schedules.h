// SPDX-License-Identifier: Apache-2.0
//
// One function for each algorithm and operation; the table in algorithms.h lists them. All are pure
// and require two ranks or more.
#pragma once

#include "collectives/schedules/schedule.h"

namespace rondo::schedules {

// i modulo size for any i, negative ones too.
inline int wrap(int i, int size) noexcept {
  return ((i % size) + size) % size;
}
// For slices and rounds, which are unsigned, from ranks, which are not.
inline std::uint32_t number(int value) noexcept {
  return static_cast<std::uint32_t>(value);
}

Schedule ring_all_reduce(int rank, int size);
Schedule ring_reduce(int rank, int size, int root);
Schedule ring_broadcast(int rank, int size, int root);
Schedule ring_all_gather(int rank, int size);
Schedule ring_reduce_scatter(int rank, int size);

Schedule tree_all_reduce(int rank, int size);
Schedule tree_reduce(int rank, int size, int root);
Schedule tree_broadcast(int rank, int size, int root);
Schedule tree_barrier(int rank, int size);

Schedule star_all_reduce(int rank, int size);
Schedule star_reduce(int rank, int size, int root);
Schedule star_broadcast(int rank, int size, int root);
Schedule star_all_gather(int rank, int size);
Schedule star_reduce_scatter(int rank, int size);
Schedule star_barrier(int rank, int size);

Schedule star_gather(int rank, int size, int root);
Schedule star_scatter(int rank, int size, int root);
Schedule ring_gather(int rank, int size, int root);
Schedule ring_scatter(int rank, int size, int root);
Schedule pairwise_all_to_all(int rank, int size);

Schedule doubling_all_reduce(int rank, int size);
Schedule doubling_barrier(int rank, int size);

Schedule chain_all_reduce(int rank, int size);
Schedule chain_reduce(int rank, int size, int root);
Schedule chain_reduce_scatter(int rank, int size);

// For any number of ranks: the halves of a group may differ by one rank.
Schedule halving_all_reduce(int rank, int size);
Schedule halving_all_gather(int rank, int size);
Schedule halving_reduce_scatter(int rank, int size);

Schedule two_shot_all_reduce(int rank, int size);
Schedule two_shot_all_gather(int rank, int size);
Schedule two_shot_reduce_scatter(int rank, int size);
Schedule two_shot_barrier(int rank, int size);

// hosts: of `size` ranks, or a default object for one host. On one host the operations without a
// root use two_shot.
Schedule two_level_all_reduce(int rank, int size, const Hosts& hosts);
Schedule two_level_all_gather(int rank, int size, const Hosts& hosts);
Schedule two_level_reduce_scatter(int rank, int size, const Hosts& hosts);
Schedule two_level_reduce(int rank, int size, int root, const Hosts& hosts);
Schedule two_level_broadcast(int rank, int size, int root, const Hosts& hosts);
Schedule two_level_barrier(int rank, int size, const Hosts& hosts);

// Returns the first rail of a two-level all-reduce that belongs to the rank with this local number
// on a host of `ranks` ranks. Its rails end before the first rail of the next local number.
constexpr int first_rail(int local, int ranks, int rails) noexcept {
  return (local * rails + ranks - 1) / ranks;
}
// Returns the steps between hosts of a two-level schedule: all that the links carry where the ranks
// of this host sum and copy in memory that they share. Slices and rounds stay, so these links carry
// the same frames in the same order.
Schedule between_hosts(const Schedule& schedule, int rank, const Hosts& hosts);

}  // namespace rondo::schedules

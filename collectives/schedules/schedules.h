// SPDX-License-Identifier: Apache-2.0
//
// One function for each algorithm and operation; the table in algorithms.h lists them. All are pure
// and require two ranks or more.
#pragma once

#include <vector>

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

// Returns the steps between hosts of a two-level schedule: all that the links carry where the ranks
// of this host sum and copy in memory that they share. Steps without a peer are left out too.
// Slices and rounds stay, so these links carry the same frames in the same order. On the root's
// host, where a reduce ends, the last step of a slice keeps: its sum has the root's input already.
Schedule between_hosts(const Schedule& schedule, int rank, const Hosts& hosts);

// Slices that lie side by side, from `first` to the one before `end`.
struct Slices {
  std::uint32_t first = 0, end = 0;
};
// For each rank of a host, ascending: slices of its rails, or none.
using Row = std::vector<Slices>;
// Returns what the ranks of the host do in shared memory instead of the steps that between_hosts()
// leaves out. They take the rows of a segment one after the other. Each rank either sums its own
// slices of the row, or copies the slices of the others from them. Each slice is in one row. Rows
// come in the order of the steps that between_hosts() returns.
//   all_reduce, reduce, broadcast
//                   One row: the rails of a rank lie side by side.
//   reduce_scatter  A row has blocks of one host, at most one for each rank. Rows come in the order
//                   in which the links need them: first the host before this one, last this host.
//   all_gather      The same rows in the order in which the links bring them, this host first. In
//                   its row each rank has its own block.
// A barrier has no rows: the ranks of a host only wait for each other.
std::vector<Row> rows_inside(Collective operation, int host, const Hosts& hosts);

}  // namespace rondo::schedules

// SPDX-License-Identifier: Apache-2.0
//
// Recursive doubling: in round k every rank exchanges all it has with the rank that differs in bit k. The fewest serial hops of
// all algorithms, but every round carries the whole buffer. A rank sends its value and then writes over it, so a link must be able
// to hold one frame without the receiver's help.
#include "collectives/schedules.h"

namespace rondo {

// Ranks beyond the largest power of two fold their value into a partner before, and get the result from it after.
Schedule doubling_all_reduce(int rank, int size) {
  Schedule schedule{.slices = 1, .steps = {}};
  int core = 1;
  while (core * 2 <= size) core *= 2;
  if (rank >= core) {
    schedule.steps.push_back({.slice = 0, .to = rank - core});
    schedule.steps.push_back({.slice = 0, .from = rank - core, .keep = true});
    return schedule;
  }
  const int extra = rank + core < size ? rank + core : no_rank;
  if (extra != no_rank) schedule.steps.push_back({.slice = 0, .from = extra, .reduce = true});
  schedule.steps.push_back({.slice = 0, .to = rank ^ 1});
  for (int bit = 1; bit < core; bit *= 2) {
    const bool last = bit * 2 == core;
    schedule.steps.push_back({.slice = 0,
                              .from = rank ^ bit,
                              .to = last ? extra : rank ^ (bit * 2),
                              .reduce = true,
                              .keep = last});
  }
  return schedule;
}

// The dissemination barrier: in round k a rank tells rank + 2^k all it has heard of; any size, ceil(log2 n) rounds.
Schedule doubling_barrier(int rank, int size) {
  Schedule schedule{.slices = 1, .steps = {}};
  const std::uint32_t token = schedule.slices;
  schedule.steps.push_back({.slice = token, .to = wrap(rank + 1, size)});
  for (int distance = 1; distance < size; distance *= 2)
    schedule.steps.push_back({.slice = token,
                              .from = wrap(rank - distance, size),
                              .to = distance * 2 < size ? wrap(rank + distance * 2, size) : no_rank});
  return schedule;
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Recursive doubling: in round k every rank exchanges its value with the rank whose number differs
// in bit k. It takes log2 n hops, and a rank handles one frame in each, but every round carries the
// whole buffer. A rank sends its value and then writes over it, so a link must be able to hold one
// frame without the receiver's help.
#include <bit>

#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

// Ranks at or above the largest power of two send their value to a partner first, and receive the
// result from it at the end.
Schedule doubling_all_reduce(int rank, int size) {
  const int exchanges = std::bit_width(static_cast<unsigned>(size)) - 1;
  const auto core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int fold = core < size ? 1 : 0;  // rounds before the first exchange
  Schedule schedule{.slices = 1, .rounds = number(2 * fold + exchanges), .steps = {}};
  if (rank >= core) {
    schedule.steps.push_back({.slice = 0, .to = rank - core});
    schedule.steps.push_back(
        {.slice = 0, .from = rank - core, .keep = true, .round = schedule.rounds});
    return schedule;
  }
  const int extra = rank + core < size ? rank + core : no_rank;
  if (extra != no_rank)
    schedule.steps.push_back({.slice = 0, .from = extra, .reduce = true, .round = 1});
  schedule.steps.push_back({.slice = 0, .to = rank ^ 1, .round = number(fold)});
  for (int k = 0; k < exchanges; ++k) {
    const bool last = k == exchanges - 1;
    schedule.steps.push_back({.slice = 0,
                              .from = rank ^ (1 << k),
                              .to = last ? extra : rank ^ (2 << k),
                              .reduce = true,
                              .keep = last,
                              .round = number(fold + k + 1)});
  }
  return schedule;
}

// The dissemination barrier: in round k a rank sends a token to rank + 2^k. It takes ceil(log2 n)
// rounds for any number of ranks.
Schedule doubling_barrier(int rank, int size) {
  const int rounds = std::bit_width(static_cast<unsigned>(size - 1));
  Schedule schedule{.slices = 1, .rounds = number(rounds), .steps = {}};
  schedule.steps.push_back({.slice = schedule.slices, .to = wrap(rank + 1, size)});
  for (int k = 0; k < rounds; ++k)
    schedule.steps.push_back({.slice = schedule.slices,
                              .from = wrap(rank - (1 << k), size),
                              .to = k == rounds - 1 ? no_rank : wrap(rank + (2 << k), size),
                              .round = number(k + 1)});
  return schedule;
}

}  // namespace rondo::schedules

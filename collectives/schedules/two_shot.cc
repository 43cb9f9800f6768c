// SPDX-License-Identifier: Apache-2.0
//
// Rank j receives slice j from all ranks, reduces it, and sends the result to all. It moves as many
// bytes as a ring, in two hops, but every rank has a link to every other. Each rank begins with the
// rank above it, so that not all ranks send to the same one first.
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

namespace {

// Sends every slice to its owner. The last frame from the others completes the owner's sum.
void append_reduce(std::vector<Step>& steps, int rank, int size) {
  for (int d = 1; d < size; ++d) {
    const int owner = wrap(rank + d, size);
    steps.push_back({.slice = number(owner), .to = owner});
  }
  for (int d = 1; d < size; ++d)
    steps.push_back({.slice = number(rank),
                     .from = wrap(rank - d, size),
                     .reduce = true,
                     .keep = d == size - 1,
                     .round = 1});
}

// Sends the rank's own slice to all others, in the round after `round`.
void append_gather(std::vector<Step>& steps, int rank, int size, std::uint32_t round) {
  for (int d = 1; d < size; ++d)
    steps.push_back({.slice = number(rank), .to = wrap(rank + d, size), .round = round});
  for (int d = 1; d < size; ++d) {
    const int owner = wrap(rank - d, size);
    steps.push_back({.slice = number(owner), .from = owner, .keep = true, .round = round + 1});
  }
}

}  // namespace

Schedule two_shot_all_reduce(int rank, int size) {
  Schedule schedule{.slices = number(size), .rounds = 2, .steps = {}};
  append_reduce(schedule.steps, rank, size);
  append_gather(schedule.steps, rank, size, 1);
  return schedule;
}

Schedule two_shot_all_gather(int rank, int size) {
  Schedule schedule{.slices = number(size), .rounds = 1, .steps = {}};
  schedule.steps.push_back({.slice = number(rank), .keep = true});
  append_gather(schedule.steps, rank, size, 0);
  return schedule;
}

Schedule two_shot_reduce_scatter(int rank, int size) {
  Schedule schedule{.slices = number(size), .rounds = 1, .steps = {}};
  append_reduce(schedule.steps, rank, size);
  return schedule;
}

Schedule two_shot_barrier(int rank, int size) {
  Schedule schedule{.slices = 1, .rounds = 1, .steps = {}};
  const std::uint32_t token = schedule.slices;
  for (int d = 1; d < size; ++d)
    schedule.steps.push_back({.slice = token, .to = wrap(rank + d, size)});
  for (int d = 1; d < size; ++d)
    schedule.steps.push_back({.slice = token, .from = wrap(rank - d, size), .round = 1});
  return schedule;
}

}  // namespace rondo::schedules

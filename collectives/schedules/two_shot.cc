// SPDX-License-Identifier: Apache-2.0
//
// Everybody talks with everybody: rank j gets slice j from all, and sends what has become of it to
// all. The bytes of a ring in two hops, for as many links and frames as there are ranks. Each rank
// begins with the one above it, so that not all send to the same one at first.
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

namespace {

// Every slice to its owner; the owner has summed its own when the last has come.
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

// One's own slice to everybody; it travels in the round after `round`.
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

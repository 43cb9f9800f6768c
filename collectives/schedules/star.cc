// SPDX-License-Identifier: Apache-2.0
//
// All data goes through one rank, the centre, as with a parameter server. It takes two hops for any
// number of ranks, but the centre moves up to n-1 times the buffer each way. Frames of round 1 go
// to the centre, those of round 2 come from it.
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

// The centre is rank 0 and sums in rank order, so the bits are those of the chain.
Schedule star_all_reduce(int rank, int size) {
  Schedule schedule{.slices = 1, .rounds = 2, .steps = {}};
  if (rank != 0) {
    schedule.steps.push_back({.slice = 0, .to = 0});
    schedule.steps.push_back({.slice = 0, .from = 0, .keep = true, .round = 2});
    return schedule;
  }
  for (int peer = 1; peer < size; ++peer)
    schedule.steps.push_back(
        {.slice = 0, .from = peer, .reduce = true, .keep = peer == size - 1, .round = 1});
  for (int peer = 1; peer < size; ++peer)
    schedule.steps.push_back({.slice = 0, .to = peer, .round = 1});
  return schedule;
}

Schedule star_reduce(int rank, int size, int root) {
  Schedule schedule{.slices = 1, .rounds = 2, .steps = {}};
  const std::uint32_t token = schedule.slices;
  if (rank != root) {
    schedule.steps.push_back({.slice = 0, .to = root});
    schedule.steps.push_back({.slice = token, .from = root, .round = 2});
    return schedule;
  }
  for (int peer = 0; peer < size; ++peer)
    if (peer != root)
      schedule.steps.push_back({.slice = 0, .from = peer, .reduce = true, .round = 1});
  schedule.steps.back().keep = true;
  for (int peer = 0; peer < size; ++peer)
    if (peer != root) schedule.steps.push_back({.slice = token, .to = peer, .round = 1});
  return schedule;
}

Schedule star_broadcast(int rank, int size, int root) {
  Schedule schedule{.slices = 1, .rounds = 2, .steps = {}};
  const std::uint32_t token = schedule.slices;
  if (rank != root) {
    schedule.steps.push_back({.slice = token, .to = root});
    schedule.steps.push_back({.slice = 0, .from = root, .keep = true, .round = 2});
    return schedule;
  }
  schedule.steps.push_back({.slice = 0, .keep = true});
  for (int peer = 0; peer < size; ++peer)
    if (peer != root) schedule.steps.push_back({.slice = token, .from = peer, .round = 1});
  for (int peer = 0; peer < size; ++peer)
    if (peer != root) schedule.steps.push_back({.slice = 0, .to = peer, .round = 1});
  return schedule;
}

Schedule star_all_gather(int rank, int size) {
  Schedule schedule{.slices = number(size), .rounds = 2, .steps = {}};
  schedule.steps.push_back({.slice = number(rank), .keep = true});
  if (rank != 0) {
    schedule.steps.push_back({.slice = number(rank), .to = 0});
    for (int block = 0; block < size; ++block)
      if (block != rank)
        schedule.steps.push_back({.slice = number(block), .from = 0, .keep = true, .round = 2});
    return schedule;
  }
  for (int block = 0; block < size; ++block) {
    if (block != 0)
      schedule.steps.push_back({.slice = number(block), .from = block, .keep = true, .round = 1});
    for (int peer = 1; peer < size; ++peer)
      if (peer != block) schedule.steps.push_back({.slice = number(block), .to = peer, .round = 1});
  }
  return schedule;
}

// The centre combines all inputs for a block except the owner's. The owner adds its own and so
// finishes the block.
Schedule star_reduce_scatter(int rank, int size) {
  Schedule schedule{.slices = number(size), .rounds = 2, .steps = {}};
  if (rank != 0) {
    for (int block = 0; block < size; ++block)
      if (block != rank) schedule.steps.push_back({.slice = number(block), .to = 0});
    schedule.steps.push_back(
        {.slice = number(rank), .from = 0, .reduce = true, .keep = true, .round = 2});
    return schedule;
  }
  for (int block = 0; block < size; ++block) {
    for (int peer = 1; peer < size; ++peer)
      if (peer != block)
        schedule.steps.push_back(
            {.slice = number(block), .from = peer, .reduce = true, .round = 1});
    if (block == 0)
      schedule.steps.back().keep = true;
    else
      schedule.steps.push_back({.slice = number(block), .to = block, .round = 1});
  }
  return schedule;
}

Schedule star_barrier(int rank, int size) {
  Schedule schedule{.slices = 1, .rounds = 2, .steps = {}};
  const std::uint32_t token = schedule.slices;
  if (rank != 0) {
    schedule.steps.push_back({.slice = token, .to = 0});
    schedule.steps.push_back({.slice = token, .from = 0, .round = 2});
    return schedule;
  }
  for (int peer = 1; peer < size; ++peer)
    schedule.steps.push_back({.slice = token, .from = peer, .round = 1});
  for (int peer = 1; peer < size; ++peer)
    schedule.steps.push_back({.slice = token, .to = peer, .round = 1});
  return schedule;
}

}  // namespace rondo::schedules

// SPDX-License-Identifier: Apache-2.0
//
// Every element is summed in rank order, ((0 + 1) + 2) + ..., so its bits depend on nothing but the inputs and their number.
#include "collectives/schedules.h"

namespace rondo {

// Up to the last rank and back the way it came: each direction of a link carries the buffer once.
Schedule chain_all_reduce(int rank, int size) {
  Schedule schedule{.slices = 1, .steps = {}};
  const int below = rank - 1, above = rank + 1;
  if (rank == 0) {
    schedule.steps.push_back({.slice = 0, .to = above});
    schedule.steps.push_back({.slice = 0, .from = above, .keep = true});
  } else if (rank == size - 1) {
    schedule.steps.push_back({.slice = 0, .from = below, .to = below, .reduce = true, .keep = true});
  } else {
    schedule.steps.push_back({.slice = 0, .from = below, .to = above, .reduce = true});
    schedule.steps.push_back({.slice = 0, .from = above, .to = below, .keep = true});
  }
  return schedule;
}

namespace {

// Brings one slice to `owner`. The prefix travels from rank 0 to rank size - 2, which hands it to the owner; the last rank
// hands its own value to the owner, who combines the two: so the last addition, which finishes the value, is done where it is kept.
void append_chain(std::vector<Step>& steps, std::uint32_t slice, int rank, int size, int owner) {
  const int last = size - 1, end = size - 2;
  if (owner == last) {
    const int to = rank == last ? no_rank : rank + 1;
    if (rank == 0)
      steps.push_back({.slice = slice, .to = to});
    else
      steps.push_back({.slice = slice, .from = rank - 1, .to = to, .reduce = true, .keep = rank == last});
    return;
  }
  if (rank == last) {
    steps.push_back({.slice = slice, .to = owner});
    return;
  }
  const int to = rank < end ? rank + 1 : owner == end ? no_rank : owner;
  if (rank > 0)
    steps.push_back({.slice = slice, .from = rank - 1, .to = to, .reduce = true});
  else if (to != no_rank)
    steps.push_back({.slice = slice, .to = to});
  if (rank != owner) return;
  if (owner != end) steps.push_back({.slice = slice, .from = end});
  steps.push_back({.slice = slice, .from = last, .reduce = true, .keep = true});
}

}  // namespace

// The token goes from the root down both parts of the chain, below and above it, and to the last rank.
Schedule chain_reduce(int rank, int size, int root) {
  Schedule schedule{.slices = 1, .steps = {}};
  append_chain(schedule.steps, 0, rank, size, root);
  const std::uint32_t token = schedule.slices;
  const int last = size - 1, end = size - 2;
  if (rank == root) {
    if (root > 0) schedule.steps.push_back({.slice = token, .to = root - 1});
    if (root < end) schedule.steps.push_back({.slice = token, .to = end});
    if (root < last) schedule.steps.push_back({.slice = token, .to = last});
    return schedule;
  }
  const bool direct = rank == last || (rank == end && root < end);
  const bool ends = rank == 0 || rank == last || rank - 1 == root;
  schedule.steps.push_back(
      {.slice = token, .from = direct ? root : rank + 1, .to = ends ? no_rank : rank - 1});
  return schedule;
}

Schedule chain_reduce_scatter(int rank, int size) {
  Schedule schedule{.slices = slice_of(size), .steps = {}};
  for (int block = 0; block < size; ++block) append_chain(schedule.steps, slice_of(block), rank, size, block);
  return schedule;
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Rank r hands to r + 1 and takes from r - 1. With n slices every link carries 2(n-1)/n of the buffer in an all-reduce, which is
// the least that any algorithm can do.
#include "collectives/schedules.h"

namespace rondo {

// Slice c starts at rank c, is whole at rank c - 1 after n - 1 hops, and goes round once more.
Schedule ring_all_reduce(int rank, int size) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  Schedule schedule{.slices = slice_of(size), .steps = {}};
  const auto slice = [&](int back) { return slice_of(wrap(rank - back, size)); };
  schedule.steps.push_back({.slice = slice(0), .to = next});
  for (int hop = 1; hop < size; ++hop)
    schedule.steps.push_back(
        {.slice = slice(hop), .from = previous, .to = next, .reduce = true, .keep = hop == size - 1});
  for (int hop = 0; hop < size - 1; ++hop)
    schedule.steps.push_back(
        {.slice = slice(hop), .from = previous, .to = hop == size - 2 ? no_rank : next, .keep = true});
  return schedule;
}

// A pipeline from the root's successor round to the root; the token goes back against the stream.
Schedule ring_reduce(int rank, int size, int root) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  const bool first = rank == wrap(root + 1, size), last = rank == root;
  Schedule schedule{.slices = 1, .steps = {}};
  if (first)
    schedule.steps.push_back({.slice = 0, .to = next});
  else
    schedule.steps.push_back(
        {.slice = 0, .from = previous, .to = last ? no_rank : next, .reduce = true, .keep = last});
  schedule.steps.push_back(
      {.slice = schedule.slices, .from = last ? no_rank : next, .to = first ? no_rank : previous});
  return schedule;
}

// The token comes to the root against the stream, and then the data goes round to the root's predecessor.
Schedule ring_broadcast(int rank, int size, int root) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  const bool first = rank == root, last = rank == wrap(root - 1, size);
  Schedule schedule{.slices = 1, .steps = {}};
  if (first) schedule.steps.push_back({.slice = 0, .keep = true});
  schedule.steps.push_back(
      {.slice = schedule.slices, .from = last ? no_rank : next, .to = first ? no_rank : previous});
  if (first)
    schedule.steps.push_back({.slice = 0, .to = next});
  else
    schedule.steps.push_back({.slice = 0, .from = previous, .to = last ? no_rank : next, .keep = true});
  return schedule;
}

Schedule ring_all_gather(int rank, int size) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  Schedule schedule{.slices = slice_of(size), .steps = {}};
  schedule.steps.push_back({.slice = slice_of(rank), .keep = true});
  schedule.steps.push_back({.slice = slice_of(rank), .to = next});
  for (int hop = 1; hop < size; ++hop)
    schedule.steps.push_back({.slice = slice_of(wrap(rank - hop, size)),
                              .from = previous,
                              .to = hop == size - 1 ? no_rank : next,
                              .keep = true});
  return schedule;
}

// Slice c starts at rank c + 1, so that it is whole at rank c.
Schedule ring_reduce_scatter(int rank, int size) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  Schedule schedule{.slices = slice_of(size), .steps = {}};
  schedule.steps.push_back({.slice = slice_of(previous), .to = next});
  for (int hop = 2; hop <= size; ++hop)
    schedule.steps.push_back({.slice = slice_of(wrap(rank - hop, size)),
                              .from = previous,
                              .to = hop == size ? no_rank : next,
                              .reduce = true,
                              .keep = hop == size});
  return schedule;
}

}  // namespace rondo

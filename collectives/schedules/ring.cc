// SPDX-License-Identifier: Apache-2.0
//
// Rank r sends to r + 1 and receives from r - 1. In an all-reduce with n slices every link carries
// 2(n-1)/n of the buffer, the least that any algorithm can do.
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

// Slice c starts at rank c. After n - 1 hops rank c - 1 has the complete sum, which goes round once
// more.
Schedule ring_all_reduce(int rank, int size) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  Schedule schedule{.slices = number(size), .rounds = number(2 * size - 2), .steps = {}};
  schedule.steps.push_back({.slice = number(rank), .to = next});
  for (int hop = 1; hop <= 2 * size - 2; ++hop)
    schedule.steps.push_back({.slice = number(wrap(rank - hop, size)),
                              .from = previous,
                              .to = hop == 2 * size - 2 ? no_rank : next,
                              .reduce = hop < size,
                              .keep = hop >= size - 1,
                              .round = number(hop)});
  return schedule;
}

// A pipeline from the root's successor round to the root. Then the token goes the opposite way.
Schedule ring_reduce(int rank, int size, int root) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  const int hop = wrap(rank - root - 1, size), hops = size - 1;  // the root is the last
  const bool first = hop == 0, last = hop == hops;
  Schedule schedule{.slices = 1, .rounds = number(2 * hops), .steps = {}};
  if (first)
    schedule.steps.push_back({.slice = 0, .to = next});
  else
    schedule.steps.push_back({.slice = 0,
                              .from = previous,
                              .to = last ? no_rank : next,
                              .reduce = true,
                              .keep = last,
                              .round = number(hop)});
  schedule.steps.push_back({.slice = schedule.slices,
                            .from = last ? no_rank : next,
                            .to = first ? no_rank : previous,
                            .round = number(2 * hops - hop)});
  return schedule;
}

// The token starts at the root's predecessor and goes backwards round to the root. Then the data
// goes forwards round to that predecessor.
Schedule ring_broadcast(int rank, int size, int root) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  const int hop = wrap(rank - root, size), hops = size - 1;  // the root is the first
  const bool first = hop == 0, last = hop == hops;
  Schedule schedule{.slices = 1, .rounds = number(2 * hops), .steps = {}};
  if (first) schedule.steps.push_back({.slice = 0, .keep = true});
  schedule.steps.push_back({.slice = schedule.slices,
                            .from = last ? no_rank : next,
                            .to = first ? no_rank : previous,
                            .round = number(hops - hop)});
  if (first)
    schedule.steps.push_back({.slice = 0, .to = next, .round = number(hops)});
  else
    schedule.steps.push_back({.slice = 0,
                              .from = previous,
                              .to = last ? no_rank : next,
                              .keep = true,
                              .round = number(hops + hop)});
  return schedule;
}

Schedule ring_all_gather(int rank, int size) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  Schedule schedule{.slices = number(size), .rounds = number(size - 1), .steps = {}};
  schedule.steps.push_back({.slice = number(rank), .keep = true});
  schedule.steps.push_back({.slice = number(rank), .to = next});
  for (int hop = 1; hop < size; ++hop)
    schedule.steps.push_back({.slice = number(wrap(rank - hop, size)),
                              .from = previous,
                              .to = hop == size - 1 ? no_rank : next,
                              .keep = true,
                              .round = number(hop)});
  return schedule;
}

// Slice c starts at rank c + 1, so that its sum is complete at rank c.
Schedule ring_reduce_scatter(int rank, int size) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  Schedule schedule{.slices = number(size), .rounds = number(size - 1), .steps = {}};
  schedule.steps.push_back({.slice = number(previous), .to = next});
  for (int hop = 1; hop < size; ++hop)
    schedule.steps.push_back({.slice = number(wrap(previous - hop, size)),
                              .from = previous,
                              .to = hop == size - 1 ? no_rank : next,
                              .reduce = true,
                              .keep = hop == size - 1,
                              .round = number(hop)});
  return schedule;
}

}  // namespace rondo::schedules

// SPDX-License-Identifier: Apache-2.0
//
// Operations that only move blocks: gather, scatter and all_to_all. Nothing is reduced, so no rank
// has to finish a value.
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

// Every rank sends its block to the root. The root sends tokens back when it has all blocks.
Schedule star_gather(int rank, int size, int root) {
  Schedule schedule{.slices = number(size), .rounds = 2, .steps = {}};
  const std::uint32_t token = schedule.slices;
  if (rank != root) {
    schedule.steps.push_back({.slice = number(rank), .to = root});
    schedule.steps.push_back({.slice = token, .from = root, .round = 2});
    return schedule;
  }
  schedule.steps.push_back({.slice = number(rank), .keep = true});
  for (int peer = 0; peer < size; ++peer)
    if (peer != root)
      schedule.steps.push_back({.slice = number(peer), .from = peer, .keep = true, .round = 1});
  for (int peer = 0; peer < size; ++peer)
    if (peer != root) schedule.steps.push_back({.slice = token, .to = peer, .round = 1});
  return schedule;
}

// The root first receives a token from every rank: with its block a rank is done, and no rank may
// be done before all have begun.
Schedule star_scatter(int rank, int size, int root) {
  Schedule schedule{.slices = number(size), .rounds = 2, .steps = {}};
  const std::uint32_t token = schedule.slices;
  if (rank != root) {
    schedule.steps.push_back({.slice = token, .to = root});
    schedule.steps.push_back({.slice = number(rank), .from = root, .keep = true, .round = 2});
    return schedule;
  }
  schedule.steps.push_back({.slice = number(rank), .keep = true});
  for (int peer = 0; peer < size; ++peer)
    if (peer != root) schedule.steps.push_back({.slice = token, .from = peer, .round = 1});
  for (int peer = 0; peer < size; ++peer)
    if (peer != root) schedule.steps.push_back({.slice = number(peer), .to = peer, .round = 1});
  return schedule;
}

// Every rank sends its own block first and then forwards those of the ranks behind it. The token
// goes the opposite way.
Schedule ring_gather(int rank, int size, int root) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  const int hop = wrap(rank - root - 1, size), hops = size - 1;  // the root is the last
  const bool first = hop == 0, last = hop == hops;
  Schedule schedule{.slices = number(size), .rounds = number(2 * hops), .steps = {}};
  if (last)
    schedule.steps.push_back({.slice = number(rank), .keep = true});
  else
    schedule.steps.push_back({.slice = number(rank), .to = next});
  for (int behind = 1; behind <= hop; ++behind)
    schedule.steps.push_back({.slice = number(wrap(rank - behind, size)),
                              .from = previous,
                              .to = last ? no_rank : next,
                              .keep = last,
                              .round = number(behind)});
  schedule.steps.push_back({.slice = schedule.slices,
                            .from = last ? no_rank : next,
                            .to = first ? no_rank : previous,
                            .round = number(2 * hops - hop)});
  return schedule;
}

// The token goes to the root first. Then the blocks leave the root the opposite way, the one with
// the longest way first.
Schedule ring_scatter(int rank, int size, int root) {
  const int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
  const int hop = wrap(rank - root, size), hops = size - 1;  // the root is the first
  const bool first = hop == 0, last = hop == hops;
  Schedule schedule{.slices = number(size), .rounds = number(2 * hops), .steps = {}};
  if (first) schedule.steps.push_back({.slice = number(rank), .keep = true});
  schedule.steps.push_back({.slice = schedule.slices,
                            .from = last ? no_rank : next,
                            .to = first ? no_rank : previous,
                            .round = number(hops - hop)});
  for (int target = hops; target > hop; --target)
    schedule.steps.push_back({.slice = number(wrap(root + target, size)),
                              .from = first ? no_rank : previous,
                              .to = next,
                              .round = number(2 * hops - target + hop)});
  if (!first)
    schedule.steps.push_back(
        {.slice = number(rank), .from = previous, .keep = true, .round = number(2 * hops)});
  return schedule;
}

// In each turn the ranks r and p with r + p = turn (modulo n) exchange their blocks, so each pair
// has one turn. A rank sends block p before it receives block p; an exchange in place needs no
// other order.
Schedule pairwise_all_to_all(int rank, int size) {
  Schedule schedule{.slices = number(size), .rounds = 1, .steps = {}};
  schedule.steps.push_back({.slice = number(rank), .keep = true});
  for (int turn = 0; turn < size; ++turn)
    if (const int peer = wrap(turn - rank, size); peer != rank)
      schedule.steps.push_back({.slice = number(peer), .to = peer});
  for (int turn = 0; turn < size; ++turn)
    if (const int peer = wrap(turn - rank, size); peer != rank)
      schedule.steps.push_back({.slice = number(peer), .from = peer, .keep = true, .round = 1});
  return schedule;
}

}  // namespace rondo::schedules

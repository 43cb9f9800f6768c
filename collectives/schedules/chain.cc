// SPDX-License-Identifier: Apache-2.0
//
// Every element is summed in rank order, ((0 + 1) + 2) + ..., so its bits depend only on the inputs
// and on the number of ranks.
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

// From rank 0 up to the last rank and back: each direction of a link carries the buffer once.
Schedule chain_all_reduce(int rank, int size) {
  const int below = rank - 1, above = rank + 1, last = size - 1;
  Schedule schedule{.slices = 1, .rounds = number(2 * last), .steps = {}};
  const Step up{.slice = 0, .from = below, .reduce = true, .round = number(rank)};
  if (rank == last) {
    schedule.steps.push_back(up);
    schedule.steps.back().to = below;
    schedule.steps.back().keep = true;
    return schedule;
  }
  if (rank == 0) {
    schedule.steps.push_back({.slice = 0, .to = above});
  } else {
    schedule.steps.push_back(up);
    schedule.steps.back().to = above;
  }
  schedule.steps.push_back({.slice = 0,
                            .from = above,
                            .to = rank == 0 ? no_rank : below,
                            .keep = true,
                            .round = number(2 * last - rank)});
  return schedule;
}

namespace {

// Sums one slice at `owner`. The partial sum travels from rank 0 to rank size - 2, which sends it
// to the owner. The last rank sends its own value to the owner, and the owner adds the two. So the
// last addition, which finishes the value, happens where the value is kept. If the owner is the
// last rank, the partial sum simply travels on to it.
void append_chain(std::vector<Step>& steps, std::uint32_t slice, int rank, int size, int owner) {
  const int last = size - 1, end = owner == last ? last : size - 2;
  if (rank > end) {
    steps.push_back({.slice = slice, .to = owner, .round = number(end)});
    return;
  }
  const int to = rank < end ? rank + 1 : owner == end ? no_rank : owner;
  if (rank > 0)
    steps.push_back({.slice = slice,
                     .from = rank - 1,
                     .to = to,
                     .reduce = true,
                     .keep = rank == last,
                     .round = number(rank)});
  else if (to != no_rank)
    steps.push_back({.slice = slice, .to = to});
  if (rank != owner || owner == last) return;
  if (owner != end) steps.push_back({.slice = slice, .from = end, .round = number(last)});
  steps.push_back(
      {.slice = slice, .from = last, .reduce = true, .keep = true, .round = number(last)});
}

}  // namespace

// The root sends the token to the last rank, to the rank below it, and to rank size - 2. From the
// rank below it goes down to rank 0, and from rank size - 2 down to the rank above the root.
Schedule chain_reduce(int rank, int size, int root) {
  Schedule schedule{.slices = 1, .rounds = number(2 * size - 2), .steps = {}};
  append_chain(schedule.steps, 0, rank, size, root);
  const std::uint32_t token = schedule.slices;
  const int last = size - 1, end = size - 2;
  if (rank == root) {
    if (root > 0) schedule.steps.push_back({.slice = token, .to = root - 1, .round = number(last)});
    if (root < end) schedule.steps.push_back({.slice = token, .to = end, .round = number(last)});
    if (root < last) schedule.steps.push_back({.slice = token, .to = last, .round = number(last)});
    return schedule;
  }
  const bool direct = rank == last || (rank == end && root < end);
  const bool ends = rank == 0 || rank == last || rank - 1 == root;
  const int hops =
      direct ? 0 : (rank < root ? root : end + 1) - rank - 1;  // beyond the token's first hop
  schedule.steps.push_back({.slice = token,
                            .from = direct ? root : rank + 1,
                            .to = ends ? no_rank : rank - 1,
                            .round = number(size + hops)});
  return schedule;
}

Schedule chain_reduce_scatter(int rank, int size) {
  Schedule schedule{.slices = number(size), .rounds = number(size - 1), .steps = {}};
  for (int block = 0; block < size; ++block)
    append_chain(schedule.steps, number(block), rank, size, block);
  return schedule;
}

}  // namespace rondo::schedules

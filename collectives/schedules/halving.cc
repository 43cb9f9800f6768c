// SPDX-License-Identifier: Apache-2.0
//
// Recursive halving, and doubling on the way back. A group of ranks splits into those at even and
// those at odd places, and each half takes over its own slices. A rank sends the slices of the
// other half to its neighbour there, and continues in its own half. In a group with an odd number
// of ranks the last one has no neighbour of its own: it sends the slices of the odd half to the
// last rank of that half, which then receives from two. So this works for any number of ranks, in
// ceil(log2 n) hops.
//
// Each rank sends (n-1)/n of the buffer on the way there and receives as much on the way back. A
// rank with two neighbours receives more there and sends more back. Neighbours exchange first, and
// most. All frames of a level share one round, so one frame of credit on a link is enough.
#include <bit>

#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

namespace {

// Ranks first, first + stride, first + 2 stride, ...
struct Group {
  int first = 0, stride = 1, count = 0;
};

struct Level {
  Group own, other;                      // this rank's half, and the other one
  int partner = no_rank;                 // receives the other half's slices from this rank
  int partners[2] = {no_rank, no_rank};  // send this rank the slices of its half
};

Level split(const Group& group, int rank) {
  const int place = (rank - group.first) / group.stride;
  const auto at = [&](int p) { return group.first + p * group.stride; };
  const Group even{group.first, 2 * group.stride, (group.count + 1) / 2};
  const Group odd{at(1), 2 * group.stride, group.count / 2};
  if (place % 2 == 0) {
    const bool single = place == group.count - 1;
    return {
        even, odd, at(single ? place - 1 : place + 1), {single ? no_rank : at(place + 1), no_rank}};
  }
  const bool last = place + 2 == group.count;  // only one even place follows
  return {odd, even, at(place - 1), {at(place - 1), last ? at(place + 1) : no_rank}};
}

std::vector<Level> levels_of(int rank, int size) {
  std::vector<Level> levels;
  for (Group group{0, 1, size}; group.count > 1; group = levels.back().own)
    levels.push_back(split(group, rank));
  return levels;
}

int hops_of(int size) {
  return std::bit_width(static_cast<unsigned>(size - 1));
}

template <class Function>
void for_each(const Group& group, Function function) {
  for (int i = 0; i < group.count; ++i) function(group.first + i * group.stride);
}

void append_halving(std::vector<Step>& steps, const std::vector<Level>& levels) {
  for (std::uint32_t i = 0; i < levels.size(); ++i) {
    const Level& level = levels[i];
    const bool whole = i + 1 == levels.size();
    for_each(level.other, [&](int owner) {
      steps.push_back({.slice = number(owner), .to = level.partner, .round = i});
    });
    for_each(level.own, [&](int owner) {
      for (const int partner : level.partners)
        if (partner != no_rank)
          steps.push_back(
              {.slice = number(owner), .from = partner, .reduce = true, .round = i + 1});
    });
    steps.back().keep = whole;
  }
}

// The levels in reverse order. `round` is the last round before them.
void append_doubling(std::vector<Step>& steps, const std::vector<Level>& levels, int size,
                     std::uint32_t round) {
  for (std::uint32_t i = number(static_cast<int>(levels.size())); i-- > 0;) {
    const Level& level = levels[i];
    const std::uint32_t before = round + number(hops_of(size)) - 1 - i;
    for_each(level.own, [&](int owner) {
      for (const int partner : level.partners)
        if (partner != no_rank)
          steps.push_back({.slice = number(owner), .to = partner, .round = before});
    });
    for_each(level.other, [&](int owner) {
      steps.push_back(
          {.slice = number(owner), .from = level.partner, .keep = true, .round = before + 1});
    });
  }
}

}  // namespace

Schedule halving_all_reduce(int rank, int size) {
  const std::uint32_t hops = number(hops_of(size));
  Schedule schedule{.slices = number(size), .rounds = 2 * hops, .steps = {}};
  const std::vector<Level> levels = levels_of(rank, size);
  append_halving(schedule.steps, levels);
  append_doubling(schedule.steps, levels, size, hops);
  return schedule;
}

Schedule halving_reduce_scatter(int rank, int size) {
  Schedule schedule{.slices = number(size), .rounds = number(hops_of(size)), .steps = {}};
  append_halving(schedule.steps, levels_of(rank, size));
  return schedule;
}

Schedule halving_all_gather(int rank, int size) {
  Schedule schedule{.slices = number(size), .rounds = number(hops_of(size)), .steps = {}};
  schedule.steps.push_back({.slice = number(rank), .keep = true});
  append_doubling(schedule.steps, levels_of(rank, size), size, 0);
  return schedule;
}

}  // namespace rondo::schedules

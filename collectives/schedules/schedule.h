// SPDX-License-Identifier: Apache-2.0
//
// Algorithms are data: what one rank does for one segment, as a list of steps. Pure: no pointers,
// bytes or time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/types.h>

#include "base/traits.h"
#include "collectives/schedules/hosts.h"

namespace rondo::schedules {

inline constexpr int no_rank = -1;

// Receive, reduce, keep, send: any subset, in this order.
//   from, no reduce: the slice's value becomes what comes from `from`.
//   from, reduce:    it becomes what comes combined with this rank's value (its input when the
//                    slice has not been touched yet).
//   keep:            the value is final on this rank and belongs in the output. A reducing step
//                    that keeps has combined every rank's contribution (the result's scale is
//                    applied there, once), and so has a keep without from.
//   to:              the value is sent to `to`.
// Steps that name the same slice run in list order; steps of different slices are independent,
// except that frames on one link keep the list order of their steps on both ends. A step that
// writes a value (from) waits until every send of that slice by an earlier step, begun or not, has
// been handed over: recursive doubling receives from the very peer it still has to send to.
//
// slice == Schedule::slices is the token: a frame without bytes, which carries order and agreement
// only.
// A token step is a fence: it begins when every step before it in the list is done (received, and
// its send handed over), and no step behind it begins before it is done. So "steps done in this
// segment >= after" is all that an engine has to ask, where after is the index of a token step, and
// for others one more than the index of the last token step before, or 0.
struct Step {
  std::uint32_t slice = 0;
  int from = no_rank;
  int to = no_rank;
  bool reduce = false;
  bool keep = false;
  // What a step receives travels in this round of the segment, what it sends in the next. Rounds
  // never decrease along the steps of a slice, along a link, or across a token; all links share
  // them, and so their frames can keep one order (order.h).
  std::uint32_t round = 0;
};

struct Schedule {
  std::uint32_t slices = 1;
  std::uint32_t rounds = 0;  // on all ranks the same: frames travel in rounds 1 to `rounds`
  std::vector<Step> steps;
};

enum class Algorithm : std::uint8_t {
  ring,
  tree,
  star,
  doubling,
  chain,
  pairwise,
  halving,
  two_shot,
  two_level,
  direct
};
inline constexpr int algorithm_count = 10;
std::string_view name_of(Algorithm algorithm) noexcept;  // "ring", "two_shot"
std::string algorithm_names();  // all of them, for messages: "ring, tree, ..."
std::optional<Algorithm> parse_algorithm(std::string_view text) noexcept;

// Whether the table has a row for the pair (algorithms.h; docs/schedules.md says what each does).
// Operations with counts by rank have the algorithms of without_counts(). direct has none, for it
// has no schedule: the ranks load and store each other's memory (direct.h).
bool supports(Algorithm algorithm, Collective operation) noexcept;
// Whether the operation has any algorithm: those between single pairs of ranks have none.
bool has_schedules(Collective operation) noexcept;
// Operations with counts of their own for each rank run the schedule of those with equal ones; the
// others their own.
constexpr Collective without_counts(Collective operation) noexcept {
  return base::traits_of(operation).plain;
}

// The steps of `rank`. Slices: for operations on blocks (is_blocked in call.h) slice i is rank i's
// block; otherwise the segment is cut into `slices` nearly equal parts. In an all_to_all blocks
// have two ends: a step that sends slice i sends the block of the input that is for rank i, one
// that receives it stores the block of the output that comes from rank i. Requires supports(), 0 <=
// rank < size, 0 <= root < size. Alone (size 1) the only step is {slice 0, keep}, or none for a
// barrier. hosts: of `size` ranks, or a default object for one host. Algorithms in which neighbours
// matter take the ranks host by host, whatever their numbers (AlgorithmTraits::host_by_host). The
// star keeps its centre, and the chain the order of the ranks. No rank is done with its steps
// before every rank has begun its own (tokens see to it where data does not): the checker proves
// it.
Schedule make_schedule(Algorithm algorithm, Collective operation, int rank, int size, int root,
                       const Hosts& hosts = {});

}  // namespace rondo::schedules

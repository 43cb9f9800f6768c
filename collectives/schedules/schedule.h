// SPDX-License-Identifier: Apache-2.0
//
// Algorithms are data: a schedule lists the steps of one rank for one segment. It knows no
// pointers, bytes or time. All functions here are pure and thread-safe.
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
//   from, no reduce: the received value becomes the slice's value.
//   from, reduce:    the received value is combined with this rank's value, which is its input
//                    until a step has written the slice.
//   keep:            the value is final on this rank and belongs in the output. A reducing step
//                    that keeps has combined every rank's contribution, and the result's scale is
//                    applied there, once. The same holds for a keep without from.
//   to:              the value is sent to `to`.
// Steps of one slice run in list order. Steps of different slices are independent, but frames on
// one link keep the list order of their steps on both ends.
//
// A step that receives (from) must not write over memory that an earlier step of the slice sends
// from. It waits until the link has read that memory, even if the send has not begun yet: in
// recursive doubling a rank receives from the peer that it still has to send to.
//
// slice == Schedule::slices is the token: a frame without bytes, for order and agreement only. A
// token step is a fence. It begins when every step before it in the list is done: received, and its
// send handed over. Steps behind it begin when it is done; only a keep without from does not wait
// for it. The engine asks one question for both: steps done in this segment >= after. For a token
// step, after is its own index. For other steps, after is one more than the index of the last token
// step before them, or 0.
struct Step {
  std::uint32_t slice = 0;
  int from = no_rank;
  int to = no_rank;
  bool reduce = false;
  bool keep = false;
  // A step receives in this round of the segment and sends in the next. Rounds never decrease along
  // the steps of a slice, along a link, or across a token. All links count the same rounds, which
  // gives all frames one order (order.h).
  std::uint32_t round = 0;
};

struct Schedule {
  std::uint32_t slices = 1;
  std::uint32_t rounds = 0;  // the same on all ranks: frames travel in rounds 1 to `rounds`
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

// Whether the table has a row for the pair (algorithms.h; docs/reference/schedules.md says what
// each does). Operations with counts by rank have the algorithms of without_counts(). False for
// Algorithm::direct, which has no schedule: the ranks load and store each other's memory
// (collectives/direct).
bool supports(Algorithm algorithm, Collective operation) noexcept;
// Whether the operation has any algorithm. Messages between pairs of ranks have none.
bool has_schedules(Collective operation) noexcept;
// The operation whose schedule is run: with counts by rank it is the one with equal counts.
constexpr Collective without_counts(Collective operation) noexcept {
  return base::traits_of(operation).plain;
}

// The steps of `rank`. Requires supports(), 0 <= rank < size, 0 <= root < size.
// hosts: of `size` ranks, or a default object for one host.
//
// Slices: for operations on blocks (is_blocked in call.h) slice i is rank i's block. Otherwise the
// segment is cut into `slices` nearly equal parts. In an all_to_all, a step that sends slice i
// sends the input's block for rank i; a step that receives slice i stores the output's block from
// rank i. With one rank the only step is {slice 0, keep}; a barrier then has none.
//
// Algorithms in which neighbours matter take the ranks host by host, whatever their numbers
// (AlgorithmTraits::host_by_host). The star keeps its centre, and the chain the order of the ranks.
//
// No rank is done with its steps before every rank has begun its own. Tokens ensure this where data
// does not, and the checker proves it.
Schedule make_schedule(Algorithm algorithm, Collective operation, int rank, int size, int root,
                       const Hosts& hosts = {});

}  // namespace rondo::schedules

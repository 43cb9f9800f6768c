// SPDX-License-Identifier: Apache-2.0
//
// Lists the traits of operations: a table with one row for each. Everything that depends on the
// kind of an operation (sizes of buffers, checks, proofs, measurements) asks this table. All of it
// is constant, so it is thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <rondo/types.h>

namespace rondo::base {

// Which part of the whole buffer a rank passes as input, or gets as output.
enum class Extent : std::uint8_t {
  nothing,
  all,
  own_block,  // the block of this rank
  on_root     // all on the root, nothing elsewhere
};

struct Traits {
  Collective operation = Collective::barrier;
  std::string_view name = {};
  // The form with equal counts of an operation whose schedule takes a count for each rank;
  // otherwise the operation itself. all_to_all_v too: it runs as messages, without a schedule.
  Collective plain = operation;
  Extent in = Extent::all, out = Extent::all;
  bool reduces = false;
  // The buffer holds one block for each rank, one after the other.
  bool blocks = false;
  // Messages between pairs of ranks: no schedule, no direct form.
  bool messages = false;

  constexpr bool rooted() const noexcept { return in == Extent::on_root || out == Extent::on_root; }
  // The schedule takes a count for each rank. False for all_to_all_v, which has no schedule.
  constexpr bool has_counts() const noexcept { return plain != operation; }
  // The input is one block, the output has a block from each rank.
  constexpr bool gathers() const noexcept { return in == Extent::own_block; }
  // The input has a block for each rank, the output is one.
  constexpr bool scatters() const noexcept { return out == Extent::own_block; }
  // A call gives the count of one block, which is the whole of the smaller buffer.
  constexpr bool counts_one_block() const noexcept {
    return (gathers() || scatters()) && !has_counts();
  }
};

// In the order of the enum. The last row is for values outside it.
inline constexpr std::array<Traits, collective_count + 1> all_traits{{
    {.operation = Collective::all_reduce, .name = "all_reduce", .reduces = true},
    {.operation = Collective::reduce, .name = "reduce", .out = Extent::on_root, .reduces = true},
    {.operation = Collective::broadcast, .name = "broadcast", .in = Extent::on_root},
    {.operation = Collective::all_gather,
     .name = "all_gather",
     .in = Extent::own_block,
     .blocks = true},
    {.operation = Collective::reduce_scatter,
     .name = "reduce_scatter",
     .out = Extent::own_block,
     .reduces = true,
     .blocks = true},
    {.operation = Collective::barrier,
     .name = "barrier",
     .in = Extent::nothing,
     .out = Extent::nothing},
    {.operation = Collective::gather,
     .name = "gather",
     .in = Extent::own_block,
     .out = Extent::on_root,
     .blocks = true},
    {.operation = Collective::scatter,
     .name = "scatter",
     .in = Extent::on_root,
     .out = Extent::own_block,
     .blocks = true},
    {.operation = Collective::all_to_all, .name = "all_to_all", .blocks = true},
    {.operation = Collective::all_gather_v,
     .name = "all_gather_v",
     .plain = Collective::all_gather,
     .in = Extent::own_block,
     .blocks = true},
    {.operation = Collective::reduce_scatter_v,
     .name = "reduce_scatter_v",
     .plain = Collective::reduce_scatter,
     .out = Extent::own_block,
     .reduces = true,
     .blocks = true},
    {.operation = Collective::all_to_all_v, .name = "all_to_all_v", .messages = true},
    {.operation = Collective::send, .name = "send", .out = Extent::nothing, .messages = true},
    {.operation = Collective::receive, .name = "receive", .in = Extent::nothing, .messages = true},
    {.operation = static_cast<Collective>(collective_count),
     .name = "unknown",
     .in = Extent::nothing,
     .out = Extent::nothing,
     .messages = true},
}};
static_assert([] {
  for (std::size_t i = 0; i < all_traits.size(); ++i)
    if (static_cast<std::size_t>(all_traits[i].operation) != i || all_traits[i].name.empty())
      return false;
  return true;
}());

constexpr const Traits& traits_of(Collective operation) noexcept {
  return all_traits[std::min<std::size_t>(static_cast<std::size_t>(operation), collective_count)];
}

// Whether a rank has the given block of a buffer of this extent, or, if the buffer has no blocks,
// the given part.
constexpr bool holds(Extent extent, bool is_root, bool is_own_block) noexcept {
  switch (extent) {
    case Extent::all:
      return true;
    case Extent::own_block:
      return is_own_block;
    case Extent::on_root:
      return is_root;
    case Extent::nothing:
      break;
  }
  return false;
}
// Whether a rank has any part of such a buffer.
constexpr bool holds_some(Extent extent, bool is_root) noexcept {
  return holds(extent, is_root, true);
}

}  // namespace rondo::base

// SPDX-License-Identifier: Apache-2.0
//
// What tells the operations apart: one row for each. Everything else that depends on the kind of an
// operation (sizes of buffers, what is checked, what is proved, what is measured) asks this table.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <rondo/types.h>

namespace rondo::base {

// What of the whole buffer a rank passes as input, or receives as output.
enum class Extent : std::uint8_t {
  nothing,
  all,
  own_block,  // the block of this rank, where there is a block for each
  on_root     // all on the root, nothing elsewhere
};

struct Traits {
  Collective operation = Collective::barrier;
  std::string_view name = {};
  // The same operation with equal counts; the operation itself where it has no counts by rank.
  Collective plain = operation;
  Extent in = Extent::all, out = Extent::all;
  bool reduces = false;
  // The buffer holds one block for each rank, one after the other.
  bool blocks = false;
  // Messages between pairs of ranks: no schedule, no direct form.
  bool messages = false;

  constexpr bool rooted() const noexcept { return in == Extent::on_root || out == Extent::on_root; }
  // Each rank has a count of its own.
  constexpr bool has_counts() const noexcept { return plain != operation; }
  // The output has a block from each rank, the input is one.
  constexpr bool gathers() const noexcept { return in == Extent::own_block; }
  // The input has a block for each rank, the output is one.
  constexpr bool scatters() const noexcept { return out == Extent::own_block; }
  // A call gives the count of one block, which is that of the smaller buffer.
  constexpr bool counts_one_block() const noexcept {
    return (gathers() || scatters()) && !has_counts();
  }
};

// In the order of the enum, and a last row for values outside it.
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

// Whether a rank has the given block of such a buffer; where the buffer is not cut into blocks, any
// part of it.
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
// Whether a rank has any of it.
constexpr bool holds_some(Extent extent, bool is_root) noexcept {
  return holds(extent, is_root, true);
}

}  // namespace rondo::base

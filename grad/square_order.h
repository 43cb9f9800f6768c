// SPDX-License-Identifier: Apache-2.0
//
// The order in which squares of a gradient's elements are added. It depends on the number of the
// element alone, so all ranks, layouts, processors and GPUs get the same bits. All sums are f64.
//
// A block has 4096 elements: 32 groups of 16 rows of 8 lanes, as they lie in memory. Squares are
// added down each lane of a group, row by row. The lanes of later groups are added to those of the
// first, and lanes_total() adds the eight that remain. The last block may be shorter.
//
// The sums of blocks lie in memory likewise, in lines of 256: they are added down each column. A
// line is 32 groups of 8 lanes, which are added as above.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace rondo::grad {

inline constexpr std::size_t square_lanes = 8, square_rows = 16, square_groups = 32;
inline constexpr std::size_t square_group = square_lanes * square_rows;
inline constexpr std::size_t square_block = square_groups * square_group;
inline constexpr std::size_t square_line = square_groups * square_lanes;

// How many blocks a gradient has.
RONDO_HD constexpr std::uint64_t square_blocks(std::uint64_t elements) noexcept {
  return elements / square_block + (elements % square_block != 0 ? 1 : 0);
}

namespace {

RONDO_HD inline double lanes_total(const double (&lanes)[square_lanes]) noexcept {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace
}  // namespace rondo::grad

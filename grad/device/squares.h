// SPDX-License-Identifier: Apache-2.0
//
// The kernels of norms: sums of squares in the order of arithmetic.h. A block of threads makes
// one sum. Eight of its threads add up the rows of one group, each thread one lane.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/short_floats.h"
#include "device/phases.h"
#include "device/several.h"
#include "grad/device/arguments.h"
#include "grad/device/arithmetic.h"

namespace rondo::grad {

namespace {

static_assert(device::block_threads == square_line, "a thread for each lane of a block");

// The share of each thread in the sum of a block: its lane of its group.
template <class Element>
struct OneBlock {
  using Stored = typename Element::Stored;
  static constexpr std::size_t bytes = sizeof(Stored);

  RONDO_HD static std::uint64_t sums(std::uint64_t count) noexcept { return square_blocks(count); }
  RONDO_HD static double sum(const Piece& piece, std::uint64_t block, unsigned thread) noexcept {
    const std::uint64_t first = block * square_block,
                        place = thread / square_lanes * square_group + thread % square_lanes;
    const std::uint64_t count = piece.count - first;
    const std::byte* const elements = piece.from + first * bytes;
    double sum = 0;
    if (count >= square_block) {
      for (std::uint64_t row = 0; row < square_rows; ++row)
        sum += term(elements + (place + row * square_lanes) * bytes);
      return sum;
    }
    RONDO_ROLLED
    for (std::uint64_t row = 0; row < square_rows; ++row)
      if (const std::uint64_t i = place + row * square_lanes; i < count)
        sum += term(elements + i * bytes);
    return sum;
  }

 private:
  RONDO_HD static double term(const std::byte* element) noexcept {
    const auto value =
        static_cast<double>(Element::decode(device::Several<Stored, 1>::load(element).at[0]));
    return value * value;
  }
};

// Likewise of the sums of blocks: a column. All of a piece give one sum, and null gives 0.
struct AllBlocks {
  static constexpr std::size_t bytes = sizeof(double);

  RONDO_HD static std::uint64_t sums(std::uint64_t) noexcept { return 1; }
  RONDO_HD static double sum(const Piece& piece, std::uint64_t, unsigned thread) noexcept {
    double sum = 0;
    if (piece.from == nullptr) return sum;
    RONDO_ROLLED
    for (std::uint64_t i = thread; i < piece.count; i += square_line)
      sum += device::Several<double, 1>::load(piece.from + i * sizeof(double)).at[0];
    return sum;
  }
};

// Memory that the threads of a block share.
struct SquareShared {
  // The sum of a lane from those of the threads. After a barrier.
  RONDO_HD void sum_lane(unsigned lane) noexcept {
    double sum = 0;
    for (std::size_t group = 0; group < square_groups; ++group)
      sum += threads[group * square_lanes + lane];
    lanes[lane] = sum;
  }

  double threads[square_line];
  double lanes[square_lanes];
};

// to[b] (f64) = sum b of `from`. The grid has as many blocks as there are sums in all pieces.
template <class Summands>
struct SquareSums {
  using Arguments = PieceArguments;
  using Shared = SquareShared;
  // to_bytes 0: a block of threads for each sum, whatever its length.
  static constexpr std::size_t from_bytes = Summands::bytes, to_bytes = 0;
  static constexpr int phases = 3;

  RONDO_HD static void run(int phase, const Arguments& arguments, Shared& shared,
                           const device::GridThread& thread) noexcept {
    const unsigned index = thread.index;
    if (phase == 1) {
      if (index < square_lanes) shared.sum_lane(index);
      return;
    }
    if (phase == 2 && index != 0) return;
    std::uint64_t block = thread.block;
    RONDO_ROLLED
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      const Piece& piece = arguments.pieces[i];
      const std::uint64_t sums = Summands::sums(piece.count);
      if (block < sums) {
        if (phase == 0)
          shared.threads[index] = Summands::sum(piece, block, index);
        else
          device::Several<double, 1>{{lanes_total(shared.lanes)}}.store(piece.to +
                                                                        block * sizeof(double));
        return;
      }
      block -= sums;
    }
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      Piece& piece = arguments.pieces[i];
      if (piece.from != nullptr) visit(piece.from, piece.count * Summands::bytes);
      visit(piece.to, Summands::sums(piece.count) * sizeof(double));
    }
  }
};

}  // namespace
}  // namespace rondo::grad

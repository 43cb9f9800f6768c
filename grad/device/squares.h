// SPDX-License-Identifier: Apache-2.0
//
// The kernels of norms: sums in the order of arithmetic.h. A block of threads makes one sum, each
// thread one column.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/phases.h"
#include "device/several.h"
#include "grad/device/arguments.h"
#include "grad/device/arithmetic.h"

namespace rondo::grad {

namespace {

static_assert(device::block_threads == square_columns, "a thread for each column");

// Each block of elements gives the sum of its squares.
template <class Element>
struct OneBlock {
  static constexpr Operation operation = Operation::sum_squares;
  static constexpr DType from_type = Element::type;
  using Stored = typename Element::Stored;

  RONDO_HD static std::uint64_t sums(std::uint64_t count) noexcept { return square_blocks(count); }
  RONDO_HD static double sum(const Piece& piece, std::uint64_t block, unsigned column) noexcept {
    const std::uint64_t first = block * square_block, left = piece.count - first;
    const std::byte* const elements = piece.from + first * sizeof(Stored);
    return column_sum(left < square_block ? left : square_block, column, [&](std::uint64_t i) {
      const auto stored = device::Several<Stored, 1>::load(elements + i * sizeof(Stored)).at[0];
      const auto value = static_cast<double>(Element::decode(stored));
      return value * value;
    });
  }
};

// All sums of blocks of a piece give one sum, and null gives 0.
struct AllBlocks {
  static constexpr Operation operation = Operation::sum_blocks;
  static constexpr DType from_type = DType::f64;
  using Stored = double;

  RONDO_HD static std::uint64_t sums(std::uint64_t) noexcept { return 1; }
  RONDO_HD static double sum(const Piece& piece, std::uint64_t, unsigned column) noexcept {
    return column_sum(piece.from == nullptr ? 0 : piece.count, column, [&](std::uint64_t i) {
      return device::Several<double, 1>::load(piece.from + i * sizeof(double)).at[0];
    });
  }
};

// to[b] (f64) = sum b of `from`. The grid has as many blocks as there are sums in all pieces.
template <class Summands>
struct Sums {
  using Arguments = PieceArguments;
  struct Shared {
    double columns[square_columns], lanes[square_lanes];
  };
  static constexpr Operation operation = Summands::operation;
  static constexpr DType from_type = Summands::from_type, to_type = DType::f64;
  static constexpr int phases = 3;

  RONDO_HD static void run(int phase, const Arguments& arguments, Shared& shared,
                           const device::GridThread& thread) noexcept {
    const unsigned index = thread.index;
    if (phase == 1) {
      if (index < square_lanes) shared.lanes[index] = lane_sum(shared.columns, index);
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
          shared.columns[index] = Summands::sum(piece, block, index);
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
      if (piece.from != nullptr) visit(piece.from, piece.count * sizeof(typename Summands::Stored));
      visit(piece.to, Summands::sums(piece.count) * sizeof(double));
    }
  }
};

}  // namespace
}  // namespace rondo::grad

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

// The grid has as many blocks as there are sums in all pieces: one for each block of elements if
// squares are added, and otherwise one for each piece, which is 0 if `from` is null.
template <class Element, Operation What>
struct Sums {
  using Arguments = PieceArguments;
  struct Shared {
    double columns[square_columns], lanes[square_lanes];
  };
  static constexpr Operation operation = What;
  static constexpr DType from_type = Element::type, to_type = DType::f64;
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
      const std::uint64_t sums = sums_of(piece);
      if (block < sums) {
        if (phase == 0)
          shared.columns[index] = sum(piece, block * square_block, index);
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
      if (piece.from != nullptr) visit(piece.from, piece.count * sizeof(Stored));
      visit(piece.to, sums_of(piece) * sizeof(double));
    }
  }

 private:
  using Stored = typename Element::Stored;
  static constexpr bool squares = What == Operation::sum_squares;

  RONDO_HD static std::uint64_t sums_of(const Piece& piece) noexcept {
    return squares ? square_blocks(piece.count) : 1;
  }
  RONDO_HD static double sum(const Piece& piece, std::uint64_t first, unsigned column) noexcept {
    const std::uint64_t left = piece.from == nullptr ? 0 : piece.count - first;
    const std::byte* const from = piece.from + first * sizeof(Stored);
    return column_sum(
        squares && left > square_block ? square_block : left, column, [from](std::uint64_t i) {
          const auto stored = device::Several<Stored, 1>::load(from + i * sizeof(Stored));
          const auto value = static_cast<double>(Element::decode(stored.at[0]));
          return squares ? value * value : value;
        });
  }
};

}  // namespace
}  // namespace rondo::grad

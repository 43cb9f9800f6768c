// SPDX-License-Identifier: Apache-2.0
//
// Passes over gradients, and the arguments of their kernels. Addresses are those that the GPU uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/types.h>

namespace rondo::grad {

// Elements that lie in one place. Pieces of a pass overlap only where `from` is `to`.
struct Piece {
  const std::byte* from;  // null: zeros
  std::byte* to;
  std::byte* saved;          // null, or where a move saves `to`
  std::uint64_t count;       // of elements; a move counts them as u16
  std::uint32_t number = 0;  // names it in Pass::overflow
};

enum class Operation : std::uint8_t {
  move,         // to = from
  multiply,     // to = from * factor
  sum_squares,  // to[b] (f64) = the sum of the squares of block b (arithmetic.h)
  sum_blocks    // to (f64) = the sum of all sums of blocks
};

// One operation on some pieces. kernels.h lists the pairs of types that there are.
struct Pass {
  Operation operation = Operation::move;
  DType from = DType::u16, to = DType::u16;
  double factor = 1;  // with `squares`: the largest norm, from which the factor follows
  // Null, or where f32 becomes f16: gets 1 + the number of a piece with an element too large for
  // that.
  std::uint32_t* overflow = nullptr;
  const double* squares = nullptr;  // null, or the sum of all squares, to clip by
};

struct PieceArguments {
  static constexpr std::size_t most = 101;

  Piece pieces[most];
  std::uint32_t count;
  Pass pass;
};
static_assert(sizeof(PieceArguments) <= 4096, "what every GPU takes");

}  // namespace rondo::grad

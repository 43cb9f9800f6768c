// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the kernels of gradient buckets. Addresses are those that the GPU uses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo::grad {

// Elements that lie in one place. Pieces of a launch overlap only where `from` is `to`.
struct Piece {
  const std::byte* from;  // null: zeros
  std::byte* to;
  std::byte* saved;          // null, or where a move saves `to`
  std::uint64_t count;       // of `from`. Moves: bytes, a multiple of 2; otherwise elements
  std::uint32_t number = 0;  // of its word
};

// All pieces of a launch take the same kernel and what follows them.
struct PieceArguments {
  static constexpr std::size_t most = 101;

  Piece pieces[most];
  std::uint32_t count;
  double factor;  // to multiply by; of scale: the largest norm
  std::uint32_t*
      words;  // may be null; to_f16 sets those of pieces with an element too large for it
  const double* squares;  // of scale: the sum of all squares
};
static_assert(sizeof(PieceArguments) <= 4096, "what every GPU takes");

}  // namespace rondo::grad

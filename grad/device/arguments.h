// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of gradient buckets are given. Addresses are those that the GPU uses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo::grad {

// A part of a bucket that lies in one place, with addresses of its elements. Pieces of a launch
// overlap only where `from` is `to`.
struct DevicePiece {
  const std::byte* from;  // null: zeros
  std::byte* to;
  std::byte* saved;          // null, or where moves save `to`
  std::uint64_t count;       // of `from`. Moves: bytes, a multiple of 2; otherwise elements
  std::uint32_t number = 0;  // of its word
};

// All pieces of a launch take the same kernel, factor and words.
struct PieceArguments {
  static constexpr std::size_t most = 101;

  DevicePiece pieces[most];
  std::uint32_t count;
  double factor;
  std::uint32_t* words;  // see the kernel; may be null
};
static_assert(sizeof(PieceArguments) <= 4096, "what every GPU takes");

}  // namespace rondo::grad

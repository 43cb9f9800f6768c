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
  std::byte* beside;    // null, or see the kernel
  std::uint64_t count;  // of `from`. Moves: bytes, a multiple of 2; otherwise elements
};

// All pieces of a launch take the same kernel and factor.
struct PieceArguments {
  static constexpr std::size_t most = 126;

  DevicePiece pieces[most];
  std::uint32_t count;
  double factor;
};
static_assert(sizeof(PieceArguments) <= 4096, "what every GPU takes");

}  // namespace rondo::grad

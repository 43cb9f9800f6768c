// SPDX-License-Identifier: Apache-2.0
//
// What each rank does in the operations between pairs of ranks.
#pragma once

#include "tools/measure/operation.h"

namespace rondo::tools {

// What one rank does with messages of a window. A rank that sends times the iteration.
struct Role {
  int peer = 0;
  bool sends = true, receives = true;
};

// Rank i of the first half has rank i + ranks / 2 as its peer. The first half sends, and the second
// one receives; in bibandwidth both do both. The number of ranks is even.
constexpr Role role_of(const Operation& operation, int rank, int ranks) noexcept {
  const int half = ranks / 2;
  const bool first = rank < half, both = operation == Operation::bibandwidth();
  return {first ? rank + half : rank - half, both || first, both || !first};
}

// How many messages pass in the time of one: 2 in bibandwidth, one for each pair in rate, otherwise
// 1. The bandwidth of a row is that of all of them together.
constexpr double streams_of(const Operation& operation, int ranks) noexcept {
  if (operation == Operation::bibandwidth()) return 2;
  return operation == Operation::rate() ? ranks / 2 : 1;
}

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
//
// How ceilings of bus bandwidth are measured: the traffic of a ring, in rounds.
#pragma once

#include <rondo/options.h>

#include <chrono>
#include <cstddef>
#include <functional>

#include "tools/measure/operation.h"

namespace rondo::tools {

// Which of its two links a rank uses so that the links that an operation loads are busy at once.
// For most operations all ranks send to their right neighbour and receive from their left one.
// Broadcast and reduce leave out the link that closes the ring. For gather and scatter rank 0 sends
// to rank 1. Messages between pairs go to the peer, which is the neighbour on both sides.
struct Directions {
  bool sends = true, receives = true;
  int left = 0, right = 0;  // the neighbours
};
Directions directions_of(Operation operation, int rank, int ranks);

// How long a rank tries to finish a round: less than the other ranks wait for it.
std::chrono::nanoseconds round_patience(const Options& options);

// Rounds of one kind of stream. All ranks do the same at once.
class Rounds {
 public:
  // Moves so many bytes over each link. Returns the seconds of the slowest rank, the same value on
  // all; infinite when it failed on one of them.
  using Round = std::function<double(std::size_t bytes)>;
  // moved: bytes that the row moves over each link. Returns the rate in one direction in GB/s: the
  // best of one long round and of up to 20 short ones, which move `moved` bytes, but at least 1
  // MiB. Returns 0 when a round failed. Takes about a tenth of a second after the first call. Short
  // rounds may be faster: a busy machine disturbs them less.
  double best(std::size_t moved, const Round& round);

 private:
  std::size_t bytes_ = 0;  // of a long round; 0 before the first
};

}  // namespace rondo::tools

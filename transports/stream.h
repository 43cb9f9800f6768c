// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "transports/transport.h"

namespace rondo::transports {

// What devices move without Rondo: bytes from each rank to its right neighbour, as fast as the
// device takes them, without frames, copies and schedules. The benchmark compares with it.
//
// Ranks tell each other two things, over whatever connects them: all call address(), meet() and
// connect() in this order. Every function throws Error(system) for what the device or the system
// refuses, and Error(corrupt) for bytes of a neighbour that it cannot read.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual Blob address() const = 0;
  // What the two neighbours must know of this rank.
  struct Setup {
    Blob for_left, for_right;
  };
  // Two ranks are each other's left and right neighbour.
  virtual Setup meet(std::span<const std::byte> left, std::span<const std::byte> right) = 0;
  virtual void connect(std::span<const std::byte> from_left,
                       std::span<const std::byte> from_right) = 0;
  // Moves bytes to the right neighbour, and returns when they have arrived there. Throws
  // Error(deadline_exceeded) as well, and Error(peer_lost) for a path that broke.
  virtual void write(std::uint64_t bytes, base::TimePoint deadline) = 0;
};

}  // namespace rondo::transports

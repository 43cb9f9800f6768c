// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "base/clock.h"
#include "transports/transport.h"

namespace rondo::transports {

// Measures what devices move without Rondo: bytes from each rank to its right neighbour, without
// frames, copies and schedules. The caller carries the results of address() and prepare() to the
// neighbours. Every rank calls address(), prepare() and connect() once, in this order.
//
// Thread-bound (one thread for all calls), without locks. Throws Error(system) for what the device
// or the system refuses, and Error(corrupt) for invalid bytes of a neighbour. After an error only
// the destructor may be called.
class Stream {
 public:
  explicit Stream(Blob address) noexcept : address_(std::move(address)) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Blob& address() const noexcept { return address_; }
  // Setup messages of this rank for its two neighbours.
  struct Setup {
    Blob for_left, for_right;
  };
  // Two ranks are each other's left and right neighbour.
  virtual Setup prepare(std::span<const std::byte> left, std::span<const std::byte> right) = 0;
  virtual void connect(std::span<const std::byte> from_left,
                       std::span<const std::byte> from_right) = 0;
  // Moves bytes to the right neighbour, and returns when they have arrived there. Throws
  // Error(deadline_exceeded) as well, and Error(peer_lost) for a path that broke.
  virtual void write(std::uint64_t bytes, base::TimePoint deadline) = 0;

 private:
  const Blob address_;
};

}  // namespace rondo::transports

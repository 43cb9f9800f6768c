// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/shm/neighbour.h"
#include "transports/transport.h"

namespace rondo::shm {

// Every frame begins at a multiple of this in its ring, and so does every payload.
inline constexpr std::size_t ring_unit = 64;
static_assert(transports::frame_header_bytes == ring_unit);
constexpr std::uint64_t whole_units(std::uint64_t bytes) noexcept {
  return (bytes + ring_unit - 1) / ring_unit * ring_unit;
}

// The sending half of a link: puts frames into this rank's ring for the peer. A small frame goes
// whole or not at all. At most one large frame is under way; its payload is copied from the
// caller's memory as the peer makes room. Thread-bound (the driver of the transport), without
// locks. Impossible counters of the peer set corrupt(), and nothing is sent any more.
class ShmOutgoing {
 public:
  ShmOutgoing(ShmNeighbourState& peer, transports::Lane lane, std::byte* ring,
              std::size_t ring_bytes) noexcept
      : peer_(peer), lane_(lane), ring_(ring), ring_bytes_(ring_bytes) {}

  transports::Send send(const transports::HeaderBytes& header, std::span<const std::byte> payload,
                        std::uint64_t cookie);
  // Continues the frame under way. True when anything moved, or when there is room for the frame
  // that was refused.
  bool pump(transports::Sink& sink, transports::Link& link);
  // Forgets the frame under way.
  void halt() noexcept {
    busy_ = refused_ = false;
    payload_ = {};
  }
  bool waiting() const noexcept { return busy_; }
  // True when pump() would do something.
  bool ready() const noexcept;
  // The peer's counters are impossible.
  bool corrupt() const noexcept { return corrupt_; }

 private:
  std::size_t room() const noexcept;
  transports::Send refuse(std::size_t needed) noexcept;
  bool put();

  ShmNeighbourState& peer_;
  const transports::Lane lane_;
  std::byte* const ring_;
  const std::size_t ring_bytes_;
  std::uint64_t produced_ = 0;
  mutable std::uint64_t consumed_ = 0;  // by the peer, as last seen
  mutable bool corrupt_ = false;
  bool busy_ = false, refused_ = false;
  std::size_t needed_ = 0;  // room for the frame that was refused
  std::span<const std::byte> payload_;
  std::uint64_t cookie_ = 0;
};

}  // namespace rondo::shm

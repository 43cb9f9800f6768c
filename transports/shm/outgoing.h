// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/shm/neighbour.h"
#include "transports/shm/ring.h"
#include "transports/transport.h"

namespace rondo::shm {

// The sending half of a link: puts frames into this rank's ring for the peer. A small frame goes
// whole or not at all. A large one whose payload lies in a window goes by reference: the ring has
// its place, and the peer reads it there. Up to most_queued frames are under way like that. At most
// one large frame is copied through the ring, from the caller's memory as the peer makes room; no
// frame follows it before that is done. Thread-bound (the driver of the transport), without locks.
// Impossible counters of the peer set corrupt(), and nothing is sent any more.
class ShmOutgoing {
 public:
  static constexpr std::size_t most_queued = 16;

  ShmOutgoing(ShmNeighbourState& peer, transports::Lane lane, std::byte* ring,
              std::size_t ring_bytes, transports::Windows& windows) noexcept
      : peer_(peer), lane_(lane), ring_(ring), ring_bytes_(ring_bytes), windows_(windows) {}

  transports::Send send(const transports::HeaderBytes& header, std::span<const std::byte> payload);
  // Continues the frames under way. True when anything moved, or when there is room for the frame
  // that was refused.
  bool pump(transports::Link& link);
  // Forgets the frames under way.
  void halt() noexcept {
    copying_ = refused_ = false;
    payload_ = {};
    queued_count_ = 0;
  }
  // The caller's memory is still needed.
  bool waiting() const noexcept { return queued_count_ != 0; }
  // True when pump() would do something.
  bool ready() const noexcept;
  // The peer's counters are impossible.
  bool corrupt() const noexcept { return corrupt_; }

 private:
  static constexpr std::uint64_t copied = 0, not_copied = UINT64_MAX;  // in queued_

  std::size_t room() const noexcept;
  std::size_t known_room() const noexcept {
    return static_cast<std::size_t>(ring_bytes_ - (produced_ - consumed_)) / ring_unit * ring_unit -
           ring_unit;
  }
  bool first_is_sent() const noexcept {
    return queued_count_ != 0 && queued_[first_queued_] <= consumed_;
  }
  bool may_try_again() const noexcept {
    return refused_ && !copying_ && queued_count_ < most_queued && room() >= needed_;
  }
  transports::Send refuse(std::size_t needed) noexcept;
  transports::Send queue(std::uint64_t until) noexcept;
  std::uint64_t& last_queued() noexcept {
    return queued_[(first_queued_ + queued_count_ - 1) % most_queued];
  }
  std::byte* place(std::uint64_t at) const noexcept { return ring_ + in_ring(at, ring_bytes_); }
  void copy_whole(std::span<const std::byte> payload) noexcept;
  std::uint64_t put_header(const transports::HeaderBytes& header) noexcept;
  void tell(std::uint64_t head, std::uint64_t mask) noexcept;
  void clear_words(std::uint64_t next, std::uint64_t ahead = 0) noexcept;
  bool put_piece() noexcept;
  bool put();

  ShmNeighbourState& peer_;
  const transports::Lane lane_;
  std::byte* const ring_;
  const std::size_t ring_bytes_;
  transports::Windows& windows_;
  std::array<std::uint64_t, header_words> last_{};  // the header of the last frame
  std::uint64_t produced_ = 0;
  std::uint64_t cleared_ = 0;  // no word from produced_ to here says that a header has come
  mutable std::uint64_t consumed_ = 0;  // by the peer, as last seen
  mutable bool corrupt_ = false;
  bool copying_ = false;  // the last of queued_ goes through the ring, and payload_ is its rest
  bool refused_ = false;
  std::size_t needed_ = 0;  // room for the frame that was refused
  std::span<const std::byte> payload_;
  // How much of the ring the peer has consumed once it has read a borrowed payload.
  std::array<std::uint64_t, most_queued> queued_{};
  std::size_t first_queued_ = 0, queued_count_ = 0;
};

}  // namespace rondo::shm

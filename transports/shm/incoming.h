// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "transports/assembler.h"
#include "transports/shm/neighbour.h"
#include "transports/transport.h"

namespace rondo::shm {

// The receiving half of a link: reads the peer's ring for this rank. The sink is shown borrowed
// payloads in the ring itself. The length of a frame comes from the sink alone, and the peer's
// counters are checked against the size of the ring. Thread-bound (the driver of the transport),
// without locks. Impossible counters set corrupt(), and nothing is read any more.
class ShmIncoming {
 public:
  ShmIncoming(ShmNeighbourState& peer, transports::Lane lane, const std::byte* ring,
              std::size_t ring_bytes) noexcept
      : peer_(peer), lane_(lane), ring_(ring), ring_bytes_(ring_bytes) {}

  // Delivers what has come, a bounded number of bytes. True when anything moved.
  bool pump(transports::Sink& sink, transports::Link& link);
  // Reads nothing more.
  void halt() noexcept { frames_.halt(); }
  // True when everything that came has been delivered.
  bool empty() const noexcept { return available() == 0 && !frames_.held(); }
  // True when no part of a frame has been taken.
  bool at_boundary() const noexcept { return frames_.collecting(); }
  // Nothing more is read: the sink holds a header, or the link is closed.
  bool stuck() const noexcept { return frames_.held() || frames_.closed(); }
  bool shown() const noexcept { return frames_.held(); }
  // True when pump() would do something.
  bool ready() const noexcept { return !stuck() && !corrupt_ && available() != 0; }
  // The peer's counters are impossible.
  bool corrupt() const noexcept { return corrupt_; }
  std::string_view misuse() const noexcept { return frames_.misuse(); }

 private:
  std::uint64_t available() const noexcept;
  bool take_header(transports::Sink& sink, transports::Link& link);
  void show(transports::Sink& sink, transports::Link& link);
  bool show_again(transports::Sink& sink, transports::Link& link);
  bool deliver(transports::Sink& sink, transports::Link& link);
  void finish(transports::Sink& sink, transports::Link& link);
  void tell_consumed() noexcept;

  ShmNeighbourState& peer_;
  const transports::Lane lane_;
  const std::byte* const ring_;
  const std::size_t ring_bytes_;
  std::uint64_t consumed_ = 0, told_ = 0;
  mutable std::uint64_t produced_ = 0;  // by the peer, as last seen
  mutable bool corrupt_ = false;
  transports::Assembler frames_;
  std::size_t budget_ = 0;  // bytes that this pump() may still deliver
};

}  // namespace rondo::shm

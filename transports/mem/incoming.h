// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transports/assembler.h"
#include "transports/mem/dice.h"
#include "transports/mem/mem.h"
#include "transports/mem/ring.h"
#include "transports/transport.h"

namespace rondo::mem {

// The receiving half of a link: collects a header, agrees on it with the sink, delivers the
// payload, and starts again. The length of a frame comes from the sink alone.
class MemIncoming {
 public:
  // writer wakes the rank at the other end when it waits for room.
  MemIncoming(MemRing& ring, std::atomic<bool>& room_wanted, MemBell& writer,
              const MemFaults& faults, const MemDice& dice);

  // Delivers what has come, a bounded number of bytes. True when anything moved.
  bool pump(transports::Sink& sink, transports::Link& link);
  // Reads nothing more.
  void halt() noexcept { frames_.halt(); }
  // Everything that came has been delivered.
  bool empty() const noexcept { return ring_.view().empty() && !frames_.held() && delay_ == 0; }
  // Nothing of a frame has been taken.
  bool at_boundary() const noexcept { return frames_.at_boundary(); }
  // The sink has to act before any more is read.
  bool stuck() const noexcept { return frames_.held() || frames_.closed(); }
  bool misused() const noexcept { return frames_.misused(); }
  // Whether pump() has something to do. Asked after the bell has been told that this rank lies
  // down.
  bool ready() const noexcept { return !stuck() && !ring_.view().empty(); }

 private:
  bool collect_header();
  void show(transports::Sink& sink, transports::Link& link);
  bool show_again(transports::Sink& sink, transports::Link& link);
  bool deliver(transports::Sink& sink, transports::Link& link);
  void finish(transports::Sink& sink, transports::Link& link);
  std::span<const std::byte> piece(std::size_t most) const noexcept;
  void consume(std::size_t count) noexcept;

  MemRing& ring_;
  std::atomic<bool>& room_wanted_;
  MemBell& writer_;
  const MemFaults& faults_;
  MemDice dice_;
  transports::Assembler frames_;
  std::size_t budget_ = 0;         // bytes that this pump() may still deliver
  std::uint64_t frame_ = 0;        // number of the frame being received
  std::uint64_t delay_drawn_ = 0;  // frames for which a delay has been drawn
  std::uint64_t delay_ = 0;        // progress calls for which the frame is not seen
};

}  // namespace rondo::mem

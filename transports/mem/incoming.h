// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

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
  // Everything that came has been delivered.
  bool empty() const noexcept {
    return ring_.view().empty() && state_ != State::shown && delay_ == 0;
  }
  // Nothing of a frame has been taken.
  bool at_boundary() const noexcept { return state_ == State::header && have_ == 0; }
  // The sink has to act before any more is read.
  bool stuck() const noexcept { return state_ == State::shown || state_ == State::refused; }
  // Whether pump() has something to do. Asked after the bell has been told that this rank lies
  // down.
  bool ready() const noexcept { return !stuck() && !ring_.view().empty(); }

 private:
  // header: being collected. shown: complete, and on hold. payload: agreed and being delivered.
  // refused: for good.
  enum class State { header, shown, payload, refused };

  bool collect_header();
  bool show(transports::Sink& sink, transports::Link& link);
  bool deliver(transports::Sink& sink, transports::Link& link);
  std::size_t lend(transports::Sink& sink, transports::Link& link,
                   std::span<const std::byte> piece);
  void finish(transports::Sink& sink, transports::Link& link);
  std::span<const std::byte> piece(std::size_t most) const noexcept;
  void consume(std::size_t count) noexcept;

  MemRing& ring_;
  std::atomic<bool>& room_wanted_;
  MemBell& writer_;
  const MemFaults& faults_;
  MemDice dice_;
  State state_ = State::header;
  transports::HeaderBytes header_{};
  transports::Receive receive_;
  std::size_t have_ = 0;  // bytes of the header, then of the payload, taken from the ring
  // Bytes of an element that came in parts, which the sink has seen and not used. Twice the largest
  // element that may be left over, so that what follows always completes it.
  std::array<std::byte, 32> rest_{};
  std::size_t rest_bytes_ = 0;
  std::size_t budget_ = 0;         // bytes that this pump() may still deliver
  std::uint64_t frame_ = 0;        // number of the frame being received
  std::uint64_t delay_drawn_ = 0;  // frames for which a delay has been drawn
  std::uint64_t delay_ = 0;        // progress calls for which the frame is not seen
};

}  // namespace rondo::mem

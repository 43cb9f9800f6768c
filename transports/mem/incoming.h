// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

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
  // pipe, writer and faults outlive this; writer wakes the rank at the other end when it waits for
  // room. direction: index of the ring in the pipe.
  MemIncoming(MemPipe& pipe, int direction, MemBell& writer, const MemFaults& faults,
              const MemDice& dice);

  // Delivers what has come, a bounded number of bytes. True when anything moved.
  bool pump(transports::Link& link);
  // Reads nothing more, and takes back what was granted: when it returns, the peer writes nothing.
  void halt() noexcept {
    frames_.halt();
    grants_.close();
  }
  // Everything that came has been delivered.
  bool empty() const noexcept { return ring_.view().empty() && !frames_.held() && delay_ == 0; }
  // Nothing of a frame has been taken.
  bool at_boundary() const noexcept { return frames_.at_boundary(); }
  // The sink has to act before any more is read.
  bool stuck() const noexcept { return frames_.held() || frames_.closed(); }
  // Returns what this program has done wrong, for the message; empty: nothing.
  std::string_view misuse() const noexcept {
    return broken_promise_ ? "a frame was not taken where its memory had been announced"
                           : frames_.misuse();
  }
  // Whether pump() has something to do. Asked after the bell has been told that this rank lies
  // down.
  bool ready() const noexcept { return !stuck() && !held_.load() && !ring_.view().empty(); }

 private:
  void grant_ahead(transports::Link& link);
  bool collect_header();
  void show(transports::Link& link);
  bool show_again(transports::Link& link);
  bool deliver(transports::Link& link);
  void finish(transports::Link& link);
  std::span<const std::byte> piece(std::size_t most) const noexcept;
  void consume(std::size_t count) noexcept;

  MemRing& ring_;
  MemGrants& grants_;
  std::atomic<bool>& room_wanted_;
  const std::atomic<bool>& held_;
  MemBell& writer_;
  const MemFaults& faults_;
  MemDice dice_;
  transports::Assembler frames_;
  std::size_t budget_ = 0;         // bytes that this pump() may still deliver
  std::uint64_t frame_ = 0;        // number of the frame being received
  std::uint64_t delay_drawn_ = 0;  // frames for which a delay has been drawn
  std::uint64_t delay_ = 0;        // progress calls for which the frame is not seen
  std::vector<bool> granted_;      // frame_ and those that follow it
  bool broken_promise_ = false;
};

}  // namespace rondo::mem

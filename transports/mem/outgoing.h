// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transports/mem/dice.h"
#include "transports/mem/mem.h"
#include "transports/mem/ring.h"
#include "transports/transport.h"

namespace rondo::mem {

// The sending half of a link: a short queue of frames, the first of which may be partly in the
// ring.
class MemOutgoing {
 public:
  struct Route {
    int from, to;
    transports::Lane lane;
    int direction;  // index of the ring in the pipe
  };
  // pipe, reader and faults outlive this; reader wakes the rank at the other end.
  MemOutgoing(const Route& route, MemPipe& pipe, MemBell& reader, const MemFaults& faults,
              const MemDice& dice);

  transports::Send send(const transports::HeaderBytes& header, std::span<const std::byte> payload);
  // Moves queued frames on and counts a stall down. True when anything moved.
  bool pump(transports::Link& link);
  // Forgets the frames that are not in the ring yet.
  void halt() noexcept { queue_.clear(); }
  // Frames that are not in the ring yet.
  bool waiting() const noexcept { return !queue_.empty(); }
  // Whether pump() has something to do. Asked after the bell has been told that this rank lies
  // down.
  bool ready() const noexcept;

 private:
  struct Frame {
    transports::HeaderBytes header;
    std::span<const std::byte> payload;
    std::optional<std::uint64_t> flip;  // the bit of header and payload that arrives wrong
    std::size_t moved = 0;              // header bytes included
    std::vector<std::byte> own;         // the payload, where it is not borrowed
    // The payload goes straight to the memory that the receiver has granted, after so many progress
    // calls; the header waits until it is there.
    bool direct = false;
    std::uint64_t number = 0, late = 0;
    std::size_t bytes() const noexcept { return header.size() + payload.size(); }
  };

  transports::Send refuse(std::size_t room_needed);
  bool granted(std::size_t payload_bytes) const;
  transports::Send enqueue(Frame frame);
  bool write_granted();
  bool may_try_again() const noexcept;
  bool stalls();
  std::optional<std::uint64_t> take_flip(std::size_t payload_bytes);
  bool push(Frame& frame);
  bool write(Frame& frame, std::span<const std::byte> bytes);
  void cut_if_due(bool frame_ends) noexcept;
  MemRing& ring() const noexcept { return pipe_.rings[route_.direction]; }

  Route route_;
  MemPipe& pipe_;
  MemBell& reader_;
  const MemFaults& faults_;
  MemDice dice_;
  std::optional<MemFaults::Cut> cut_;
  std::vector<MemFaults::Flip> flips_;  // still to come on this route
  std::vector<Frame> queue_;            // never grows beyond what was reserved
  std::uint64_t frames_ = 0;            // taken over so far: the number of the next
  std::uint64_t written_ = 0;           // bytes
  std::uint64_t stall_drawn_ = 0;       // frames for which a stall has been drawn
  std::uint64_t stall_ = 0;             // progress calls for which nothing moves
  bool refusing_ = false;               // ... and nothing is taken over either
  bool refused_ = false;  // full was answered and it has not been shown since that there is room
  std::size_t room_needed_ = 0;  // for what was refused: in the ring, with nothing queued before
                                 // it; 0: a place in the queue
};

}  // namespace rondo::mem

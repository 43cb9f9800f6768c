// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "transports/assembler.h"
#include "transports/shm/neighbour.h"
#include "transports/shm/ring.h"
#include "transports/shm/windows.h"
#include "transports/transport.h"

namespace rondo::shm {

// The receiving half of a link: reads frames in the peer's ring for this rank, and payloads by
// reference in the peer's memory. It shows borrowed payloads to the sink where they lie. The length
// of a frame comes from the sink alone. It checks the peer's counters against the size of the ring,
// and places against the memory that is mapped. A wrong counter sets corrupt(), a wrong place
// bad_place(), and then it reads nothing more. Thread-bound (the driver of the transport), without
// locks.
//
// A peer that fails gives its callers their memory back, even if this rank is reading a frame by
// reference there. Such a frame never finishes: cut() is true, and the control plane brings the
// failure to this rank.
class ShmIncoming {
 public:
  ShmIncoming(ShmNeighbourState& peer, transports::Lane lane, const std::byte* ring,
              std::size_t ring_bytes, const ShmImports& imports) noexcept
      : peer_(peer), lane_(lane), ring_(ring), ring_bytes_(ring_bytes), imports_(imports) {}

  // Delivers what has come, a bounded number of bytes. True when anything moved.
  bool pump(transports::Link& link);
  // Reads nothing more.
  void halt() noexcept { frames_.halt(); }
  // True when everything that came has been delivered.
  bool empty() const noexcept { return !may_take() && referenced_.empty() && !frames_.held(); }
  // True when no part of a frame has been taken.
  bool at_boundary() const noexcept { return frames_.collecting(); }
  // Nothing more is read: the sink holds a header, or the link is closed.
  bool stuck() const noexcept { return frames_.held() || frames_.closed(); }
  bool shown() const noexcept { return frames_.held(); }
  // The peer has stopped in the middle of a frame by reference, and nothing more is read.
  bool cut() const noexcept { return cut_; }
  // True when pump() would do something.
  bool ready() const noexcept {
    return !stuck() && !corrupt_ && (may_take() || !referenced_.empty());
  }
  // The peer's counters are impossible.
  bool corrupt() const noexcept { return corrupt_; }
  // Returns what is wrong with the place of a frame. Empty: nothing.
  std::string_view bad_place() const noexcept { return bad_place_; }
  std::string_view misuse() const noexcept { return frames_.misuse(); }

 private:
  const std::byte* here() const noexcept { return ring_ + in_ring(consumed_, ring_bytes_); }
  bool header_came() const noexcept {
    return first_word(here()).load(std::memory_order_acquire) != 0;
  }
  std::uint64_t produced() const noexcept;
  std::size_t payload_came() const noexcept;
  bool may_take() const noexcept {
    return frames_.collecting() ? header_came()
                                : frames_.accepted() && (place_awaited_ || payload_came() != 0);
  }
  bool take_header(transports::Link& link);
  void show(transports::Link& link);
  bool show_again(transports::Link& link);
  bool take_place();
  bool deliver(transports::Link& link);
  bool deliver_referenced(transports::Link& link);
  void finish(transports::Link& link);
  void tell_consumed(std::uint64_t step) noexcept;

  ShmNeighbourState& peer_;
  const transports::Lane lane_;
  const std::byte* const ring_;
  const std::size_t ring_bytes_;
  const ShmImports& imports_;
  std::uint64_t consumed_ = 0, told_ = 0;
  mutable std::uint64_t produced_ = 0;  // by the peer in frames above whole_bytes, as last seen
  mutable bool corrupt_ = false;
  transports::Assembler frames_;
  bool place_awaited_ = false;             // the place of the frame comes next
  std::span<const std::byte> referenced_;  // the rest of a payload in the peer's memory
  bool cut_ = false;
  std::string bad_place_;
  std::size_t budget_ = 0;  // bytes that this pump() may still deliver
};

}  // namespace rondo::shm

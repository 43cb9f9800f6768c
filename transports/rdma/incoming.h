// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transports/assembler.h"
#include "transports/rdma/path.h"
#include "transports/rdma/send_pool.h"

namespace rondo::rdma {

// The receiving half of a link: takes the pieces that the peer writes into the slots, in the order
// of their numbers, and shows borrowed payloads where they lie. It grants the destinations of
// placed frames ahead of time, and tells the peer how many pieces it has consumed. The length of a
// frame comes from the sink alone. Thread-bound (the driver of the transport), without locks. What
// the peer does wrong sets fault(), and nothing is received any more.
class Incoming {
 public:
  // How many frames ahead a destination is granted, the next one included.
  static constexpr std::size_t frames_ahead = 8;
  // A grant costs a message; a smaller frame is copied in less time.
  static constexpr std::size_t least_granted = std::size_t{16} << 10;

  Incoming(SendPool& pool, RegionCache& regions, Consumption& consumption, bool grants) noexcept
      : pool_(pool), regions_(regions), consumption_(consumption), grants_wanted_(grants) {}
  // slots: the memory that the peer writes. control: the path for messages to the peer.
  void open(std::span<const std::byte> slots, std::size_t slot_bytes, std::size_t slot_count,
            Path& control);
  // A piece has come. No value: it sets fault().
  std::optional<PieceMark> arrived(std::uint32_t mark);
  // Delivers what has come, a bounded number of bytes, and writes to the peer. True when anything
  // moved.
  bool pump(transports::Link& link);
  void halt() noexcept { frames_.halt(); }

  // True when pump() would do something.
  bool ready() const noexcept { return !stuck() && !fault_ && next_has_come(); }
  bool shown() const noexcept { return frames_.held(); }
  // Grants what the sink expects by now, and tells the peer of it and of consumed pieces. True when
  // a message was sent. pump() does this too.
  bool look_ahead(transports::Link& link);
  // True when pump() would do no more than look_ahead() until more comes.
  bool idle() const noexcept { return !next_has_come() && !stuck() && !fault_ && !must_tell(); }
  // Nothing more is taken: the sink holds a header, or the link is closed.
  bool stuck() const noexcept { return frames_.held() || frames_.closed(); }
  // Every piece that has come was delivered.
  bool empty() const noexcept { return !next_has_come() && !frames_.held(); }
  bool at_boundary() const noexcept { return frames_.collecting(); }
  // How many pieces have been taken in all.
  std::uint64_t pieces() const noexcept { return consumption_.taken; }
  const std::optional<Fault>& fault() const noexcept { return fault_; }
  std::string_view misuse() const noexcept { return frames_.misuse(); }

 private:
  struct Slot {
    bool come = false;
    PieceMark mark;
  };
  struct Promise {
    bool made = false;
    transports::Receive receive;
  };

  Slot& slot(std::uint64_t piece) noexcept { return slots_[piece % slots_.size()]; }
  bool next_has_come() const noexcept {
    return !slots_.empty() && slots_[consumption_.taken % slots_.size()].come;
  }
  const std::byte* memory_of(std::uint64_t piece) const noexcept;
  void show(transports::Link& link);
  bool show_again(transports::Link& link);
  bool deliver(transports::Link& link);
  bool take_direct(std::size_t piece_bytes);
  void piece_taken() noexcept;
  void finish(transports::Link& link);
  void grant_ahead(transports::Link& link);
  // Grants wait for a message to the peer, or half of all slots were consumed since the last one.
  bool must_tell() const noexcept {
    return untold_count_ != 0 || consumption_.taken - consumption_.told >= slots_.size() / 2;
  }
  bool tell();
  Promise& promise(std::uint64_t frame) noexcept { return promises_[frame % frames_ahead]; }

  SendPool& pool_;
  RegionCache& regions_;
  Consumption& consumption_;
  const bool grants_wanted_;
  std::span<const std::byte> memory_;
  std::size_t slot_bytes_ = 0;
  std::vector<Slot> slots_;
  Path* control_ = nullptr;
  transports::Assembler frames_;
  std::uint64_t frame_ = 0;  // number of the frame that is being received
  std::size_t offset_ = 0;   // payload bytes of this piece that have been taken
  std::array<Promise, frames_ahead> promises_{};
  std::array<Grant, most_grants_at_once> untold_{};
  std::size_t untold_count_ = 0;
  std::size_t budget_ = 0;
  std::optional<Fault> fault_;
};

}  // namespace rondo::rdma

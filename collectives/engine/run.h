// SPDX-License-Identifier: Apache-2.0
//
// One operation under way on one rank: Progress decides what may happen, and Run knows where the
// bytes lie and combines them. It knows no links and no time; the engine moves the bytes.
// Thread-bound: the driver of the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/kernels/pair.h"
#include "collectives/schedules/call.h"
#include "collectives/schedules/layout.h"
#include "collectives/schedules/program.h"
#include "collectives/schedules/progress.h"
#include "transports/transport.h"

namespace rondo::engine {

using schedules::FramePlace;

struct Outgoing {
  FramePlace place;
  std::span<const std::byte> payload;
};

class Run {
 public:
  using Room = schedules::Progress::Room;
  // staging holds staging_bytes_needed() bytes, given later through give_staging when that is not
  // 0.
  void begin(const schedules::Program& program, const schedules::Call& call, int rank, int size,
             Room& room);
  std::size_t staging_bytes_needed() const noexcept { return staging_needed_; }
  bool waits_for_staging() const noexcept { return staging_needed_ != 0 && staging_ == nullptr; }
  void give_staging(std::byte* staging) noexcept { staging_ = staging; }

  bool complete() const noexcept { return progress_.complete(); }
  const schedules::Program& program() const noexcept { return progress_.program(); }
  const schedules::Progress::Peer& peer(int index) const noexcept { return progress_.peer(index); }

  // The frame that comes `ahead` places after the next one from a peer, when its place is known and
  // its memory may be written from now on; with ahead 0, when it can be taken now. receives must
  // not be done.
  std::optional<transports::Receive> receivable(int peer, std::size_t ahead = 0) const noexcept;
  FramePlace next_receive(int peer) const noexcept { return progress_.next_receive(peer); }
  std::size_t bytes_of(const FramePlace& place) const noexcept;
  // Combines borrowed bytes of the next frame; returns the bytes used.
  std::size_t consume(int peer, std::span<const std::byte> view) noexcept;
  // Where a placed frame's bytes are.
  std::span<const std::byte> placed(int peer) const noexcept;
  // The next frame from the peer is here, whole.
  void received(int peer) noexcept;

  // The frame that goes next to a peer, when it is ready. sends must not be done.
  std::optional<Outgoing> sendable(int peer) const noexcept;
  // The link has taken it; then, in this order: its payload may change, and the frame is on its
  // way.
  FramePlace send_started(int peer) noexcept;
  void payload_released(const FramePlace& place) noexcept { progress_.payload_released(place); }
  void send_finished(const FramePlace& place) noexcept;

 private:
  const schedules::ProgramStep& step(const FramePlace& place) const noexcept {
    return progress_.step(place);
  }
  std::optional<transports::Receive> receivable(const FramePlace& place) const noexcept;
  void lay_out(const schedules::Call& call, std::uint32_t slices, int size);
  bool out_covers(std::uint32_t slice) const noexcept;
  const std::byte* input(std::uint64_t segment, std::uint32_t slice) const noexcept;
  std::byte* value(std::uint64_t segment, std::uint32_t slice) const noexcept;
  std::size_t count(std::uint64_t segment, std::uint32_t slice) const noexcept;
  void keep_local(std::uint64_t segment, const schedules::ProgramStep& step) noexcept;
  auto keeper() noexcept {
    return [this](std::uint64_t segment, std::uint32_t step) {
      keep_local(segment, program().steps()[step]);
    };
  }

  schedules::Progress progress_;
  schedules::Signature signature_;
  schedules::Layout layout_;
  std::vector<std::size_t> offsets_;  // of the blocks, where each rank has a count of its own
  bool reducing_ = false;
  kernels::PairReduction pair_;
  const std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  std::byte* staging_ = nullptr;
  std::size_t staging_needed_ = 0;
  std::size_t element_ = 1;
  std::uint32_t rank_ = 0;
  std::vector<std::size_t> consumed_;  // by peer: payload bytes of the frame that is arriving
};

}  // namespace rondo::engine

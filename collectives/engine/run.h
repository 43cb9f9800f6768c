// SPDX-License-Identifier: Apache-2.0
//
// One operation under way on one rank: which frame each link must carry next, where its bytes lie,
// and what has been done. It knows no links and no time; the engine moves the bytes. Thread-bound:
// the driver of the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/kernels/pair.h"
#include "collectives/schedules/call.h"
#include "collectives/schedules/layout.h"
#include "collectives/schedules/order.h"
#include "collectives/schedules/program.h"
#include "transports/transport.h"

namespace rondo::engine {

// One frame of this run.
struct FramePlace {
  std::uint64_t segment = 0;
  std::uint32_t frame = 0;  // in link order
  std::uint32_t step = 0;
};

struct Outgoing {
  FramePlace place;
  std::span<const std::byte> payload;
};

struct PeerRun {
  schedules::FrameOrder receives, sends;
  std::size_t consumed = 0;  // payload bytes of the frame that is arriving
};

class Run {
 public:
  // The most that any operation so far has needed. Each makes room for it, since its memory serves
  // other shapes later.
  struct Room {
    std::size_t peers = 0, slices = 0, window = 0;
  };
  // staging holds staging_bytes_needed() bytes, given later through give_staging when that is not
  // 0.
  void begin(const schedules::Program& program, const schedules::Call& call, int rank, int size,
             Room& room);
  // An operation without frames: it never completes here.
  void begin_idle(const schedules::Program& program) noexcept;
  std::size_t staging_bytes_needed() const noexcept { return staging_needed_; }
  bool waits_for_staging() const noexcept { return staging_needed_ != 0 && staging_ == nullptr; }
  void give_staging(std::byte* staging) noexcept { staging_ = staging; }

  bool complete() const noexcept { return base_ == segments_; }
  const schedules::Program& program() const noexcept { return *program_; }
  PeerRun& peer(int index) noexcept { return peers_[static_cast<std::size_t>(index)]; }
  const PeerRun& peer(int index) const noexcept { return peers_[static_cast<std::size_t>(index)]; }

  // The frame that comes next from a peer, when it can be taken now. receives must not be done.
  std::optional<transports::Receive> receivable(int peer) const noexcept;
  FramePlace next_receive(int peer) const noexcept;
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
  void payload_released(const FramePlace& place) noexcept;
  void send_finished(const FramePlace& place) noexcept;

 private:
  struct SliceRun {
    std::uint32_t next = 0;           // position in the slice's chain
    std::uint32_t sends_pending = 0;  // values that links have yet to send, or borrow
  };

  const schedules::ProgramStep& step(const FramePlace& place) const noexcept {
    return program_->steps()[place.step];
  }
  SliceRun& slice_run(std::uint64_t segment, std::uint32_t slice) noexcept;
  const SliceRun& slice_run(std::uint64_t segment, std::uint32_t slice) const noexcept;
  bool in_window(std::uint64_t segment) const noexcept { return segment < base_ + window_; }
  // A token step waits for all steps before it, and those behind it wait for the token.
  bool fenced(const FramePlace& place) const noexcept {
    return program_->steps().size() - steps_left_[place.segment % window_] < step(place).after;
  }
  void lay_out(const schedules::Call& call, int size);
  bool out_covers(std::uint32_t slice) const noexcept;
  const std::byte* input(std::uint64_t segment, std::uint32_t slice) const noexcept;
  std::byte* value(std::uint64_t segment, std::uint32_t slice) const noexcept;
  std::size_t count(std::uint64_t segment, std::uint32_t slice) const noexcept;
  void open_segment(std::uint64_t segment) noexcept;
  void run_local_steps(std::uint64_t segment, std::uint32_t slice) noexcept;
  void keep_local(std::uint64_t segment, const schedules::ProgramStep& step) noexcept;
  void step_finished(std::uint64_t segment) noexcept;

  const schedules::Program* program_ = nullptr;
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
  std::uint64_t segments_ = 0;
  std::uint64_t window_ = 1;
  std::uint64_t base_ = 0;  // the oldest segment that is not complete
  std::vector<PeerRun> peers_;
  std::vector<SliceRun> slices_;           // window x (slices + token)
  std::vector<std::uint32_t> steps_left_;  // by segment of the window
};

}  // namespace rondo::engine

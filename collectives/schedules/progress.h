// SPDX-License-Identifier: Apache-2.0
//
// The rules of a step: how far one rank is in one operation, and what it may do next. The engine
// runs them with bytes (Run), the checker proves them, the simulator times them; nothing else
// interprets a step. They know no bytes, links or time.
//
// - A rank holds the segments of a window, the oldest of which is not complete.
// - Steps of a slice run one after another (its chain); a fused step passes its place when it has
//   received, a step that only sends when its link has taken the frame.
// - A token is a fence: it waits for every step before it, those behind it wait for the token.
// - A step that keeps without receiving is local: it runs as soon as the step before it has.
// - A frame that would be written over memory from which a link still reads must wait.
// - Each link carries its frames in the order of its table (order.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/schedules/order.h"
#include "collectives/schedules/program.h"

namespace rondo::schedules {

// One frame of an operation.
struct FramePlace {
  std::uint64_t segment = 0;
  std::uint32_t frame = 0;  // in link order
  std::uint32_t step = 0;
};

// What the bytes of a frame that is received are written over.
enum class Overwrites : std::uint8_t {
  nothing,         // the frame is empty
  value,           // the slice's value, which lies apart from this rank's input
  value_and_input  // both, in one place: the operation is in place
};

// Thread-bound. Locks nothing and throws only in begin(). The program must outlive it. Calls whose
// requirements are not met do harm that is not noticed: ask may_receive() or may_send() first.
class Progress {
 public:
  // The most that any operation so far has needed. Each makes room for it, since its memory serves
  // other shapes later.
  struct Room {
    std::size_t peers = 0, slices = 0, window = 0;
  };
  struct Peer {
    FrameOrder receives, sends;
  };

  // Allocates no more than the room demands. No step has begun before open().
  void begin(const Program& program, std::uint64_t segments, Room& room);
  // Runs what is local in the first segments. keep(segment, step) is called for every local step
  // when its turn comes, here and below.
  template <class Keep>
  void open(Keep&& keep) {
    for (std::uint64_t s = 0; s < window_; ++s) open_segment(s, keep);
    complete_segments(keep);  // of a rank alone, or one without any part in it
  }

  bool complete() const noexcept { return base_ == segments_; }
  const Program& program() const noexcept { return *program_; }
  const ProgramStep& step(const FramePlace& place) const noexcept {
    return program_->steps()[place.step];
  }
  const Peer& peer(int index) const noexcept { return peers_[static_cast<std::size_t>(index)]; }
  std::uint64_t window() const noexcept { return window_; }
  // The oldest segment that is not complete.
  std::uint64_t base() const noexcept { return base_; }
  // Steps of a segment of the window that are done: received, and handed over by their link.
  std::uint32_t steps_done(std::uint64_t segment) const noexcept {
    return static_cast<std::uint32_t>(program_->steps().size()) - steps_left_[segment % window_];
  }
  // The place in its chain that a slice of a segment of the window has reached.
  std::uint32_t reached(std::uint64_t segment, std::uint32_t slice) const noexcept {
    return slice_of(segment, slice).next;
  }
  std::size_t memory() const noexcept;

  // The frame that comes next from a peer; its receives must not be done.
  FramePlace next_receive(int peer) const noexcept {
    const FrameOrder& order = this->peer(peer).receives;
    return {order.segment(), order.frame(), program_->receive_step(peer, order.frame())};
  }
  // The frame that comes `ahead` places later than the next one, if there is one.
  std::optional<FramePlace> later_receive(int peer, std::size_t ahead) const noexcept;
  // Its segment is in the window, and what it waits for at other slices and steps is done. Of a
  // later frame too: nothing will read or write its memory before it comes.
  bool may_begin(const FramePlace& place) const noexcept {
    if (place.segment >= base_ + window_) return false;
    const ProgramStep& s = step(place);
    return reached(place.segment, s.slice) == s.chain && !fenced(place.segment, s);
  }
  // A link may still read what the frame would be written over. Requires may_begin().
  bool must_spare(const FramePlace& place, Overwrites overwrites) const noexcept {
    const ProgramStep& s = step(place);
    return slice_of(place.segment, s.slice).sends_pending != 0 &&
           (overwrites == Overwrites::value_and_input ||
            (overwrites == Overwrites::value && s.written));
  }
  bool may_receive(const FramePlace& place, Overwrites overwrites) const noexcept {
    return may_begin(place) && !must_spare(place, overwrites);
  }
  // The next frame from the peer is here, whole.
  template <class Keep>
  void received(int peer, Keep&& keep) {
    const FramePlace place = next_receive(peer);
    const ProgramStep& s = step(place);
    peers_[static_cast<std::size_t>(peer)].receives.advance();
    Slice& slice = slice_of(place.segment, s.slice);
    ++slice.next;
    if (s.sends()) ++slice.sends_pending;
    run_local_steps(place.segment, s.slice, keep);
    if (!s.sends()) finish_step(place.segment, keep);
  }

  // The frame that goes next to a peer; its sends must not be done.
  FramePlace next_send(int peer) const noexcept {
    const FrameOrder& order = this->peer(peer).sends;
    return {order.segment(), order.frame(), program_->send_step(peer, order.frame())};
  }
  bool may_send(const FramePlace& place) const noexcept {
    const ProgramStep& s = step(place);
    if (!s.writes()) return may_begin(place);
    return place.segment < base_ + window_ && reached(place.segment, s.slice) > s.chain;
  }
  // The link has taken the next frame to the peer; then, in this order: its payload may change, and
  // the frame is on its way.
  template <class Keep>
  FramePlace send_started(int peer, Keep&& keep) {
    const FramePlace place = next_send(peer);
    const ProgramStep& s = step(place);
    peers_[static_cast<std::size_t>(peer)].sends.advance();
    if (!s.writes()) {
      Slice& slice = slice_of(place.segment, s.slice);
      ++slice.sends_pending;
      ++slice.next;
      run_local_steps(place.segment, s.slice, keep);
    }
    return place;
  }
  void payload_released(const FramePlace& place) noexcept {
    --slice_of(place.segment, step(place).slice).sends_pending;
  }
  template <class Keep>
  void send_finished(const FramePlace& place, Keep&& keep) {
    finish_step(place.segment, keep);
  }

 private:
  struct Slice {
    std::uint32_t next = 0;           // position in the slice's chain
    std::uint32_t sends_pending = 0;  // values that links have yet to send, or borrow
  };

  Slice& slice_of(std::uint64_t segment, std::uint32_t slice) noexcept {
    return slices_[segment % window_ * (program_->slices() + 1) + slice];
  }
  const Slice& slice_of(std::uint64_t segment, std::uint32_t slice) const noexcept {
    return slices_[segment % window_ * (program_->slices() + 1) + slice];
  }
  bool fenced(std::uint64_t segment, const ProgramStep& step) const noexcept {
    return steps_done(segment) < step.after;
  }
  template <class Keep>
  void open_segment(std::uint64_t segment, Keep& keep) {
    steps_left_[segment % window_] = static_cast<std::uint32_t>(program_->steps().size());
    for (std::uint32_t slice = 0; slice <= program_->slices(); ++slice)
      slice_of(segment, slice) = {};
    for (std::uint32_t slice = 0; slice <= program_->slices(); ++slice)
      run_local_steps(segment, slice, keep);
  }
  template <class Keep>
  void run_local_steps(std::uint64_t segment, std::uint32_t slice, Keep& keep) {
    Slice& state = slice_of(segment, slice);
    const auto chain = program_->chain(slice);
    while (state.next < chain.size()) {
      const std::uint32_t number = chain[state.next];
      const ProgramStep& next = program_->steps()[number];
      if (!next.local()) return;
      keep(segment, number);
      ++state.next;
      if (next.sends()) {
        ++state.sends_pending;
      } else {
        --steps_left_[segment % window_];
      }
    }
  }
  template <class Keep>
  void finish_step(std::uint64_t segment, Keep& keep) {
    --steps_left_[segment % window_];
    complete_segments(keep);
  }
  template <class Keep>
  void complete_segments(Keep& keep) {
    while (base_ < segments_ && steps_left_[base_ % window_] == 0) {
      ++base_;
      if (base_ + window_ <= segments_) open_segment(base_ + window_ - 1, keep);
    }
  }

  const Program* program_ = nullptr;
  std::uint64_t segments_ = 0;
  std::uint64_t window_ = 1;
  std::uint64_t base_ = 0;
  std::vector<Peer> peers_;
  std::vector<Slice> slices_;              // window x (slices + token)
  std::vector<std::uint32_t> steps_left_;  // by segment of the window
};

}  // namespace rondo::schedules

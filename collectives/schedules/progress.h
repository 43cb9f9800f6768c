// SPDX-License-Identifier: Apache-2.0
//
// The rules of a step: how far one rank is in one operation, and what it may do next. Only this
// class interprets steps. The engine runs it with bytes (Run), the checker proves it, and the
// simulator times it. It knows no bytes, links or time.
//
// - A rank works on a window of segments. The window starts at the oldest segment that is not
//   complete.
// - The values of a staged operation are copied into memory that the window lends to a segment, and
//   results are copied out of it. A segment opens when its values are loaded. It is complete when
//   its steps are done and its results are stored. Other operations need neither.
// - Steps of a slice run one after another (its chain). A step that receives passes its place in
//   the chain when its frame is here. A step that only sends passes it when its link has taken the
//   frame.
// - A token is a fence: it waits for every step before it, and steps behind it wait for it.
// - A step that keeps without receiving is local. It runs as soon as the chain reaches it, and no
//   fence holds it back.
// - A received frame waits while a link still reads memory that the frame would be written over.
// - Each link carries its frames in the order of its table (order.h).
#pragma once

#include <algorithm>
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

// The values that the bytes of a received frame overwrite.
enum class Overwrites : std::uint8_t {
  nothing,         // the frame is empty
  value,           // the slice's value; this rank's input lies elsewhere
  value_and_input  // both in one place: the operation is in place
};

// Thread-bound. Locks nothing; only begin() allocates and throws. The program must outlive it.
// received() requires may_receive(), and send_started() requires may_send(): without them the state
// is corrupted silently.
class Progress {
 public:
  // The most that any operation has needed so far. begin() reserves that much, so that operations
  // of other shapes can later use this object without allocating.
  struct Room {
    std::size_t peers = 0, slices = 0, window = 0;
  };
  struct Peer {
    FrameOrder receives, sends;
  };
  // Where the values of an operation lie.
  enum class Values : std::uint8_t { in_buffers, staged };

  // Reserves `room`, which it raises to what this operation needs. No step begins before open() or,
  // of a staged operation, loaded().
  void begin(const Program& program, std::uint64_t segments, Room& room,
             Values values = Values::in_buffers);
  // Opens the first segments and runs their local steps. Here and below, keep(segment, step) is
  // called for every local step when its turn comes. Not for a staged operation.
  template <class Keep>
  void open(Keep&& keep) {
    advance(keep);
  }
  // Staged operations only. The values of the next segment are there: opens it. Requires that
  // opened() < openable().
  template <class Keep>
  void loaded(Keep&& keep) {
    open_segment(opened_++, keep);
    advance(keep);  // for a single rank, and for a rank without steps
  }
  // Staged operations only. The results of segment base() are stored. Requires base() < done().
  void stored() noexcept { ++base_; }

  bool complete() const noexcept { return base_ == segments_; }
  // How many segments, from the first on: may be open by now; are open or were; have done all their
  // steps.
  std::uint64_t openable() const noexcept { return std::min(base_ + window_, segments_); }
  std::uint64_t opened() const noexcept { return opened_; }
  std::uint64_t done() const noexcept { return done_; }
  const Program& program() const noexcept { return *program_; }
  const ProgramStep& step(const FramePlace& place) const noexcept {
    return program_->steps()[place.step];
  }
  const Peer& peer(int index) const noexcept { return peers_[static_cast<std::size_t>(index)]; }
  std::uint64_t window() const noexcept { return window_; }
  // The oldest segment that is not complete.
  std::uint64_t base() const noexcept { return base_; }
  // How many steps of a segment in the window are done: received, and their frames sent.
  std::uint32_t steps_done(std::uint64_t segment) const noexcept {
    return static_cast<std::uint32_t>(program_->steps().size()) - steps_left_[segment % window_];
  }
  // How far a slice of a segment in the window is in its chain.
  std::uint32_t reached(std::uint64_t segment, std::uint32_t slice) const noexcept {
    return slice_of(segment, slice).next;
  }
  std::size_t memory() const noexcept;

  // The next frame from a peer. Requires that its receives are not done.
  FramePlace next_receive(int peer) const noexcept {
    const FrameOrder& order = this->peer(peer).receives;
    return {order.segment(), order.frame(), program_->receive_step(peer, order.frame())};
  }
  // The frame `ahead` places after the next one, if there is one.
  std::optional<FramePlace> later_receive(int peer, std::size_t ahead) const noexcept;
  // The frame's segment is in the window, its chain has reached it, and no fence holds it back. If
  // this is true of a frame that comes later, no other step begins to use its memory until then.
  bool may_begin(const FramePlace& place) const noexcept {
    if (place.segment >= opened_) return false;
    const ProgramStep& s = step(place);
    return reached(place.segment, s.slice) == s.chain && !fenced(place.segment, s);
  }
  // A link may still read memory that the frame would be written over. Requires may_begin().
  bool must_spare(const FramePlace& place, Overwrites overwrites) const noexcept {
    const ProgramStep& s = step(place);
    return slice_of(place.segment, s.slice).sends_pending != 0 &&
           (overwrites == Overwrites::value_and_input ||
            (overwrites == Overwrites::value && s.written));
  }
  bool may_receive(const FramePlace& place, Overwrites overwrites) const noexcept {
    return may_begin(place) && !must_spare(place, overwrites);
  }
  // The next frame from the peer has arrived completely.
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

  // The next frame to a peer. Requires that its sends are not done.
  FramePlace next_send(int peer) const noexcept {
    const FrameOrder& order = this->peer(peer).sends;
    return {order.segment(), order.frame(), program_->send_step(peer, order.frame())};
  }
  bool may_send(const FramePlace& place) const noexcept {
    const ProgramStep& s = step(place);
    if (!s.writes()) return may_begin(place);
    return place.segment < opened_ && reached(place.segment, s.slice) > s.chain;
  }
  // The three calls for each sent frame, in this order. send_started(): the link has taken the next
  // frame to the peer. payload_released(): the link no longer reads its payload. send_finished():
  // the frame is sent, and its step is done.
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
    std::uint32_t sends_pending = 0;  // frames that wait for their link, or that it still reads
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
    advance(keep);
  }
  // Notices segments whose steps are done. Nothing else completes those of an operation that is not
  // staged, so others open in their places.
  template <class Keep>
  void advance(Keep& keep) {
    for (;;) {
      while (done_ < opened_ && steps_left_[done_ % window_] == 0) ++done_;
      if (values_ == Values::staged) return;
      base_ = done_;
      if (opened_ == openable()) return;
      open_segment(opened_++, keep);
    }
  }

  const Program* program_ = nullptr;
  std::uint64_t segments_ = 0;
  std::uint64_t window_ = 1;
  Values values_ = Values::in_buffers;
  std::uint64_t base_ = 0, done_ = 0, opened_ = 0;
  std::vector<Peer> peers_;
  std::vector<Slice> slices_;              // window x (slices + token)
  std::vector<std::uint32_t> steps_left_;  // by segment of the window
};

}  // namespace rondo::schedules

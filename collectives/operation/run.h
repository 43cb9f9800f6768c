// SPDX-License-Identifier: Apache-2.0
//
// One operation under way on one rank: Progress decides what may happen, and Run knows where the
// bytes lie and combines them. It knows no links and no time; ScheduledLane moves the bytes.
//
// Threads: thread-bound to whoever holds the engine's lock. Only begin() may throw, when there is
// no memory.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/traits.h"
#include "collectives/kernels/integer_mean.h"
#include "collectives/kernels/pair.h"
#include "collectives/schedules/call.h"
#include "collectives/schedules/layout.h"
#include "collectives/schedules/program.h"
#include "collectives/schedules/progress.h"
#include "transports/transport.h"

namespace rondo::operation {

using schedules::FramePlace;

struct Outgoing {
  FramePlace place;
  std::span<const std::byte> payload;
};

class Run {
 public:
  using Room = schedules::Progress::Room;
  // When staging_bytes_needed() is not 0, that much memory must come through give_staging().
  // Until then nothing is received. The program and the buffers of the call outlive the run.
  void begin(const schedules::Program& program, const schedules::Call& call, int rank, int size,
             Room& room);
  std::size_t staging_bytes_needed() const noexcept { return staging_needed_; }
  bool waits_for_staging() const noexcept { return staging_needed_ != 0 && staging_ == nullptr; }
  void give_staging(std::byte* staging) noexcept;

  // Whether the buffers are in memory that only a device reaches, and not empty. Then all values of
  // an open segment lie in staging memory: append_loads() says what must be copied there before
  // loaded(), and append_stores() what must be copied back when the segment is done, before
  // stored(). Each of these goes through the segments in order.
  bool staged() const noexcept { return staged_ && signature_.on_device; }
  struct Copy {
    std::size_t offset = 0;  // in the buffer, in bytes
    std::byte* staging = nullptr;
    std::size_t bytes = 0;
  };
  // Both require staging memory, and loads segment < segments_openable(). append_stores() is called
  // once for a segment: it also finishes a mean of integers.
  void append_loads(std::uint64_t segment, std::vector<Copy>& copies) const;
  void append_stores(std::uint64_t segment, std::vector<Copy>& copies) const;
  std::uint64_t segments_openable() const noexcept { return progress_.openable(); }
  std::uint64_t segments_opened() const noexcept { return progress_.opened(); }
  std::uint64_t segments_stored() const noexcept { return progress_.base(); }
  void loaded() noexcept;
  void stored() noexcept { progress_.stored(); }

  // Holds back the frames of this step and of all later steps and segments, because their first
  // values are not there yet. begin() removes the limit.
  void limit(std::uint64_t segment, std::uint32_t step) noexcept { limit_ = {segment, step}; }
  // Whether the tokens of a segment that come before its first value have passed. Requires that the
  // segment is not done.
  bool has_tokens(std::uint64_t segment) const noexcept {
    return segment < progress_.opened() &&
           progress_.steps_done(segment) >= program().leading_tokens();
  }
  std::uint64_t segments() const noexcept { return layout_.segments(); }
  // The segments whose steps are done, those that may be open, and the most between the two.
  std::uint64_t segments_done() const noexcept { return progress_.done(); }
  std::uint64_t window() const noexcept { return progress_.window(); }
  // Returns the number of segments, from the first on, whose values may be written now. If values
  // need staging memory, only open segments have room there, and none before give_staging().
  std::uint64_t segments_with_room() const noexcept {
    if (staging_needed_ == 0) return segments();
    return waits_for_staging() ? 0 : segments_openable();
  }
  // Returns the elements of the buffer that the segment has of the slice.
  schedules::Range place(std::uint64_t segment, std::uint32_t slice) const noexcept {
    return layout_.in_buffer(segment, slice);
  }
  // Where this rank's input of the slice lies, and where its value does. The input must have the
  // slice. A value may be written when segments_with_room() allows it.
  const std::byte* input(std::uint64_t segment, std::uint32_t slice) const noexcept;
  std::byte* value(std::uint64_t segment, std::uint32_t slice) const noexcept;
  // Where the input of the slice lies in the buffer of the call, also if that is staged.
  const std::byte* input_in_buffer(std::uint64_t segment, std::uint32_t slice) const noexcept {
    return in_ + input_offset(segment, slice);
  }
  // All inputs are multiplied by this before they are combined, beside the scales of their ranks.
  double input_factor() const noexcept { return pair_.input_factor(); }

  bool complete() const noexcept { return progress_.complete(); }
  const schedules::Program& program() const noexcept { return progress_.program(); }
  const schedules::Progress::Peer& peer(int index) const noexcept { return progress_.peer(index); }

  // Here and below, peer is an index into program().peers().
  //
  // ahead 0: the next frame from the peer, if it can be taken now. ahead > 0: the frame that comes
  // this many places later, if its memory may be written from now on. The peer's receives must not
  // be done.
  std::optional<transports::Receive> receivable(int peer, std::size_t ahead = 0) const noexcept;
  FramePlace next_receive(int peer) const noexcept { return progress_.next_receive(peer); }
  std::size_t bytes_of(const FramePlace& place) const noexcept;
  // Combines borrowed bytes of the next frame. Returns how many were used: whole elements only.
  // input_scale: the peer's, from the frame's header.
  std::size_t consume(int peer, std::span<const std::byte> view, double input_scale) noexcept;
  // Where the bytes of the next frame are, once it has arrived as a placed one.
  std::span<const std::byte> placed(int peer) const noexcept;
  // The whole next frame from the peer has arrived.
  void received(int peer) noexcept;

  // The next frame to the peer, if it is ready. The peer's sends must not be done.
  std::optional<Outgoing> sendable(int peer) const noexcept;
  // To be called in this order: the link has taken the frame; its payload may change; the link has
  // sent the frame.
  FramePlace send_started(int peer) noexcept;
  void payload_released(const FramePlace& place) noexcept { progress_.payload_released(place); }
  void send_finished(const FramePlace& place) noexcept;

 private:
  struct Limit {
    std::uint64_t segment = std::numeric_limits<std::uint64_t>::max();
    std::uint32_t step = 0;
  };

  const schedules::ProgramStep& step(const FramePlace& place) const noexcept {
    return progress_.step(place);
  }
  bool held_back(const FramePlace& place) const noexcept {
    return place.segment > limit_.segment ||
           (place.segment == limit_.segment && place.step >= limit_.step);
  }
  std::optional<transports::Receive> receivable(const FramePlace& place) const noexcept;
  void lay_out(const schedules::Call& call, std::uint32_t slices, int size);
  bool has_values_outside_buffers() const noexcept;
  bool in_covers(std::uint32_t slice) const noexcept;
  bool out_covers(std::uint32_t slice) const noexcept;
  std::size_t input_offset(std::uint64_t segment, std::uint32_t slice) const noexcept;
  std::size_t output_offset(std::uint64_t segment, std::uint32_t slice) const noexcept;
  std::byte* staging(std::uint64_t segment, std::uint32_t slice) const noexcept;
  void append(std::vector<Copy>& copies, std::size_t offset, std::byte* at,
              std::size_t bytes) const;
  std::byte* loaded_place(std::uint64_t segment, std::uint32_t slice) const noexcept;
  void split(std::uint64_t segment) noexcept;
  void join(std::uint64_t segment) noexcept;
  void turn_segments() noexcept;
  std::size_t count(std::uint64_t segment, std::uint32_t slice) const noexcept;
  void keep_local(std::uint64_t segment, const schedules::ProgramStep& step) noexcept;
  auto keeper() noexcept {
    return [this](std::uint64_t segment, std::uint32_t step) {
      keep_local(segment, program().steps()[step]);
    };
  }

  schedules::Progress progress_;
  schedules::Signature signature_;
  const base::Traits* traits_ = nullptr;  // of its operation
  schedules::Layout layout_;
  std::vector<std::size_t> offsets_;  // of the blocks, where each rank has a count of its own
  kernels::PairReduction pair_;
  double input_scale_ = 1;  // of this rank
  const std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  std::byte* staging_ = nullptr;
  std::size_t staging_needed_ = 0;
  // All values lie in staging memory: for buffers in device memory, and for means of integers,
  // whose sums are larger than the elements of the buffers.
  bool staged_ = false;
  const kernels::IntegerMean* mean_ = nullptr;
  std::size_t ranks_ = 1;
  std::size_t element_ = 1;      // bytes in the buffers
  std::size_t value_bytes_ = 1;  // of an element, in frames and in staging memory
  std::uint32_t rank_ = 0;
  Limit limit_;
  std::vector<std::size_t> consumed_;  // by peer: bytes combined of the frame that is arriving
};

}  // namespace rondo::operation

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "transports/transport.h"

namespace rondo::transports {

// The receiving half of a link, as far as it is the same for every transport: one frame after the
// other, from its header over the sink's answer to the last byte of its payload.
//
//   head (collecting) -> show -> accept -> payload -> finish -> head of the next
//                             -> hold   -> held, until announce() has an answer: show again
//                             -> refuse -> closed
//
// The receiver reads, or has a view of what came; this says where the next bytes go and how many,
// and keeps what the sink has seen and not used. Thread-bound: the driver of the transport. It
// locks nothing. Every function that calls the sink returns with closed() set when the sink has
// called halt() from within, and touches no memory of a frame after that.
class Assembler {
 public:
  // What a transport may put behind a header and show to nobody: a tag.
  static constexpr std::size_t most_trailer_bytes = 16;
  // A sink leaves less than this of what it is shown.
  static constexpr std::size_t most_left_over = 16;
  static constexpr std::string_view misuse = "received bytes have been left unused";

  // Before the first frame.
  void expect_trailer(std::size_t bytes) noexcept { head_bytes_ = frame_header_bytes + bytes; }
  // Nothing is read or written any more.
  void halt() noexcept { state_ = State::closed; }

  bool held() const noexcept { return state_ == State::held; }
  bool accepted() const noexcept { return state_ == State::payload; }
  // Refused, halted or misused: for good.
  bool closed() const noexcept { return state_ == State::closed; }
  // The sink has left more than an element unused: a mistake in this program.
  bool misused() const noexcept { return misused_; }
  bool collecting() const noexcept { return state_ == State::head; }
  // Nothing of the next frame is here.
  bool at_boundary() const noexcept { return collecting() && head_come_ == 0; }

  // Where the rest of the header and its trailer go.
  std::span<std::byte> head_rest() noexcept {
    return {reinterpret_cast<std::byte*>(&head_) + head_come_, head_bytes_ - head_come_};
  }
  void head_came(std::size_t bytes) noexcept { head_come_ += bytes; }
  bool head_complete() const noexcept { return head_come_ == head_bytes_; }
  const HeaderBytes& header() const noexcept { return head_.header; }
  const std::array<std::byte, most_trailer_bytes>& trailer() const noexcept {
    return head_.trailer;
  }
  // The header came in one piece.
  void set_header(const HeaderBytes& header) noexcept {
    head_.header = header;
    head_come_ = head_bytes_;
  }

  // The sink's answer for the frame whose header has not been accepted yet, or none.
  void announce(const std::optional<Receive>& next) noexcept {
    announced_ = next.has_value();
    if (next) receive_ = *next;
  }
  // Shows the complete header. True when it was accepted: then receive() is what follows.
  bool show(Link& link, Sink& sink) {
    const Header answer = sink.arrived(link, head_.header);
    if (closed()) return false;
    if (answer != Header::accept) {
      state_ = answer == Header::hold ? State::held : State::closed;
      announced_ = false;
      return false;
    }
    if (!announced_) announce(sink.expected(link, 0));
    state_ = announced_ ? State::payload : State::closed;
    misused_ = !announced_;  // a sink that accepts a frame announces it
    return announced_;
  }

  // Of the frame that has been announced or accepted.
  const Receive& receive() const noexcept { return receive_; }
  bool placed() const noexcept { return receive_.destination != nullptr; }
  // Bytes of its payload that are still to come.
  std::size_t left() const noexcept { return receive_.bytes - come_; }

  // Where the next bytes of the payload go: a placed frame's destination, else `slot` behind what
  // the sink has left, which is copied to its front. As much as is left, or as there is room for.
  std::span<std::byte> room(std::span<std::byte> slot) noexcept {
    if (placed()) return {receive_.destination + come_, left()};
    std::memcpy(slot.data(), left_over_.data(), left_over_bytes_);
    return slot.subspan(left_over_bytes_, std::min(left(), slot.size() - left_over_bytes_));
  }
  // So many bytes have been written to what room(slot) gave. The frame has been accepted.
  void came(Link& link, Sink& sink, std::span<std::byte> slot, std::size_t bytes) {
    come_ += bytes;
    if (!placed() && bytes != 0) lend(link, sink, slot.first(left_over_bytes_ + bytes));
  }
  // Likewise for a placed frame whose bytes come out of order.
  void came(std::size_t bytes) noexcept { come_ += bytes; }
  // Takes the next bytes of the payload from where they lie, at most left() of them. Returns how
  // many are done with; 0 only for none.
  std::size_t take(Link& link, Sink& sink, std::span<const std::byte> bytes) {
    std::size_t taken = bytes.size();
    if (placed())
      std::memcpy(receive_.destination + come_, bytes.data(), taken);
    else if (left_over_bytes_ == 0)
      lend(link, sink, bytes);
    else
      taken = lend_joined(link, sink, bytes);
    come_ += taken;
    return taken;
  }
  // Nothing is left(): tells the sink, and goes on with the next header.
  void finish(Link& link, Sink& sink) {
    if (state_ != State::payload) return;
    if (left_over_bytes_ != 0) return close_misused();
    state_ = State::head;
    head_come_ = come_ = 0;
    announced_ = false;
    sink.received(link);
  }

 private:
  enum class State { head, held, payload, closed };
  struct Head {
    HeaderBytes header;
    std::array<std::byte, most_trailer_bytes> trailer;
  };

  void close_misused() noexcept {
    misused_ = true;
    left_over_bytes_ = 0;
    state_ = State::closed;
  }
  // view: what was left over, and what follows it.
  void lend(Link& link, Sink& sink, std::span<const std::byte> view) {
    const std::size_t used = std::min(view.size(), sink.data(link, view));
    if (view.size() - used >= most_left_over) return close_misused();
    left_over_bytes_ = view.size() - used;
    if (left_over_bytes_ != 0)
      std::memmove(left_over_.data(), view.data() + used, left_over_bytes_);
  }
  std::size_t lend_joined(Link& link, Sink& sink, std::span<const std::byte> bytes) {
    const std::size_t taken = std::min(bytes.size(), left_over_.size() - left_over_bytes_);
    std::memcpy(left_over_.data() + left_over_bytes_, bytes.data(), taken);
    lend(link, sink, std::span(left_over_).first(left_over_bytes_ + taken));
    return taken;
  }

  State state_ = State::head;
  bool announced_ = false, misused_ = false;
  Receive receive_;
  std::size_t head_come_ = 0, head_bytes_ = frame_header_bytes;
  std::size_t come_ = 0;  // of the payload
  std::size_t left_over_bytes_ = 0;
  Head head_{};
  // Twice the largest rest of an element, so that what follows always completes it.
  std::array<std::byte, 2 * most_left_over> left_over_{};
};

}  // namespace rondo::transports

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/copy.h"
#include "transports/transport.h"

namespace rondo::transports {

// The part of a link's receiving half that is the same for every transport. It takes one frame
// after the other: its header, the sink's answer, and its payload to the last byte.
//
//   head (collecting) -> show -> accept -> payload -> finish -> head of the next
//                             -> hold   -> held, until announce() has an answer: show again
//                             -> refuse -> closed
//
// The transport's receiver reads, or has a view of the bytes that came. The assembler says where
// the next bytes go and how many, and keeps the bytes that the sink was shown and did not use.
// Thread-bound (the driver of the transport), without locks. If the sink calls halt() from within,
// the function that called the sink returns with closed() set and does not touch the frame's
// memory any more.
class Assembler {
 public:
  // The most bytes that a transport may add after a header for its own use: a tag.
  static constexpr std::size_t most_trailer_bytes = 16;
  // A sink may leave fewer than this many bytes unused.
  static constexpr std::size_t most_left_over = 16;

  // A trailer of this size follows every header. Call it before the first frame.
  void expect_trailer(std::size_t bytes) noexcept { head_bytes_ = frame_header_bytes + bytes; }
  // Nothing is read or written any more.
  void halt() noexcept { state_ = State::closed; }

  bool held() const noexcept { return state_ == State::held; }
  bool accepted() const noexcept { return state_ == State::payload; }
  // True for good once a header was refused, halt() was called or the sink misused the link.
  bool closed() const noexcept { return state_ == State::closed; }
  // Returns what the sink did wrong, a defect in this program: it left too many bytes unused, or
  // accepted a frame that it did not announce. Empty: nothing.
  std::string_view misuse() const noexcept { return misuse_; }
  bool collecting() const noexcept { return state_ == State::head; }
  // No byte of the next frame has arrived.
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
  bool show(Link& link) {
    const Header answer = link.sink().arrived(link, head_.header);
    if (closed()) return false;
    if (answer != Header::accept) {
      state_ = answer == Header::hold ? State::held : State::closed;
      announced_ = false;
      return false;
    }
    if (!announced_) announce(link.sink().expected(link, 0));
    state_ = announced_ ? State::payload : State::closed;
    if (!announced_) misuse_ = "a frame has been accepted and not announced";
    return announced_;
  }

  // Describes the frame that has been announced or accepted.
  const Receive& receive() const noexcept { return receive_; }
  bool placed() const noexcept { return receive_.destination != nullptr; }
  // How many bytes of its payload are still to come.
  std::size_t left() const noexcept { return receive_.bytes - come_; }

  // Where the next bytes of the payload go. For a placed frame that is its destination. For a
  // borrowed one it is `slot`, after the bytes that the sink left unused, which are copied to its
  // front. The result holds what is left(), or what fits in the slot.
  std::span<std::byte> room(std::span<std::byte> slot) noexcept {
    if (placed()) return {receive_.destination + come_, left()};
    std::memcpy(slot.data(), left_over_.data(), left_over_bytes_);
    return slot.subspan(left_over_bytes_, std::min(left(), slot.size() - left_over_bytes_));
  }
  // `bytes` bytes have been written to what room(slot) gave. The frame must have been accepted.
  void came(Link& link, std::span<std::byte> slot, std::size_t bytes) {
    come_ += bytes;
    if (!placed() && bytes != 0) lend(link, slot.first(left_over_bytes_ + bytes));
  }
  // Does the same for a placed frame whose bytes come out of order.
  void came(std::size_t bytes) noexcept { come_ += bytes; }
  // Takes the next bytes of the payload, at most left(), from the transport's memory. Returns how
  // many the transport may forget; 0 only when there were none.
  std::size_t take(Link& link, std::span<const std::byte> bytes) {
    std::size_t taken = bytes.size();
    if (placed())
      base::copy_bytes(receive_.destination + come_, bytes.data(), taken);
    else if (left_over_bytes_ == 0)
      lend(link, bytes);
    else
      taken = lend_joined(link, bytes);
    come_ += taken;
    return taken;
  }
  // Tells the sink that the frame is complete and goes on with the next header. Call it when
  // left() is 0.
  void finish(Link& link) {
    if (state_ != State::payload) return;
    if (left_over_bytes_ != 0) return close_misused();
    state_ = State::head;
    head_come_ = come_ = 0;
    announced_ = false;
    link.sink().received(link);
  }

 private:
  enum class State { head, held, payload, closed };
  struct Head {
    HeaderBytes header;
    std::array<std::byte, most_trailer_bytes> trailer;
  };

  void close_misused() noexcept {
    misuse_ = "received bytes have been left unused";
    left_over_bytes_ = 0;
    state_ = State::closed;
  }
  // view: the bytes that were left unused, and those that follow them.
  void lend(Link& link, std::span<const std::byte> view) {
    const std::size_t used = std::min(view.size(), link.sink().data(link, view));
    if (view.size() - used >= most_left_over) return close_misused();
    left_over_bytes_ = view.size() - used;
    if (left_over_bytes_ != 0)
      std::memmove(left_over_.data(), view.data() + used, left_over_bytes_);
  }
  std::size_t lend_joined(Link& link, std::span<const std::byte> bytes) {
    const std::size_t taken = std::min(bytes.size(), left_over_.size() - left_over_bytes_);
    std::memcpy(left_over_.data() + left_over_bytes_, bytes.data(), taken);
    lend(link, std::span(left_over_).first(left_over_bytes_ + taken));
    return taken;
  }

  State state_ = State::head;
  bool announced_ = false;
  std::string_view misuse_;
  Receive receive_;
  std::size_t head_come_ = 0, head_bytes_ = frame_header_bytes;
  std::size_t come_ = 0;  // bytes of the payload that have arrived
  std::size_t left_over_bytes_ = 0;
  Head head_{};
  // Twice the largest rest of an element, so that there is always room to complete the element.
  std::array<std::byte, 2 * most_left_over> left_over_{};
};

}  // namespace rondo::transports

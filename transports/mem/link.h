// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rondo/error.h>

#include "base/copy.h"
#include "base/mutex.h"
#include "transports/assembler.h"
#include "transports/mem/mem.h"
#include "transports/mem/pipe.h"
#include "transports/transport.h"

namespace rondo::mem {

// Bounds what one link may deliver in one progress call, so that no link starves another.
inline constexpr std::size_t bytes_at_once = std::size_t{256} << 10;

// One end of a link. It sends from a short queue of frames, the first of which may be partly in the
// ring. It receives one frame after the other, as Assembler says.
class MemLink final : public transports::Link {
 public:
  MemLink(int rank, int peer, transports::Lane lane, const transports::Sinks& sinks, MemPipe& pipe)
      : Link(peer, lane, sinks, "mem rank " + std::to_string(peer)),
        pipe_(pipe),
        out_(pipe.from(rank)),
        in_(pipe.from(peer)) {
    for (const auto& cut : out_.faults.cuts)
      if (concerns(cut)) cut_ = cut;
    for (const auto& flip : out_.faults.flips)
      if (concerns(flip)) flips_.push_back(flip);
    queue_.reserve(out_.faults.queue);
  }
  // Closes in order.
  ~MemLink() override {
    halt();
    pipe_.end(MemPipe::closed);
    out_.reader.ring();
  }

  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte> payload) override {
    // The end is told at the next progress.
    if (broken_ || !is_open()) return transports::Send::full;
    if (stalls() || queue_.size() == out_.faults.queue) return refuse(0);
    Frame frame{header, payload, taken_};
    if (is_granted(payload.size())) {
      frame.late = out_.roll(MemRoute::late, taken_++, out_.faults.late);
      const transports::Send answer = enqueue(std::move(frame));
      write_granted();
      return answer;
    }
    // A small frame goes at once or not at all, so that a link needs no memory for it; unless it
    // never goes at once.
    if (is_eager(payload) && frame.bytes() <= out_.faults.capacity && stall_ == 0 &&
        (!queue_.empty() || out_.ring.room() < frame.bytes()))
      return refuse(frame.bytes());
    ++taken_;
    flip_bit(frame);
    if (queue_.empty() && stall_ == 0) {
      if (push(frame)) out_.reader.ring();
      if (frame.moved == frame.bytes()) return transports::Send::done;
    }
    return enqueue(std::move(frame));
  }
  // Moves what can be moved, a bounded number of bytes. True when anything moved.
  bool progress() {
    if (broken_) return false;
    // The end is looked at before the ring: what was sent before it is still delivered.
    const bool ended = !is_open();
    bool moved = send_queued();
    moved |= receive();
    if (broken_) return moved;
    const std::string_view misuse =
        broken_promise_ ? "a frame was not taken where its memory had been announced"
                        : frames_.misuse();
    if (!misuse.empty()) {
      break_off(Errc::system, misuse, false);
      return true;
    }
    if (!ended || !over()) return moved;
    const bool clean = pipe_.state.load() == MemPipe::closed && frames_.at_boundary();
    const std::uint64_t cut_after = pipe_.cut_after.load();
    std::string what = clean ? "closed by the peer" : "connection reset by peer";
    if (cut_after != MemPipe::not_cut)
      what += " (a fault, after " + std::to_string(cut_after) + " bytes)";
    break_off(std::make_error_code(clean ? std::errc{} : std::errc::connection_reset), what, clean);
    return true;
  }
  // Whether progress() has something to do. Asked after MemBell::lie_down().
  bool ready() const noexcept {
    if (broken_) return false;
    if (!is_open() && over()) return true;
    return ready_to_send() || (!stuck() && !in_.held.load() && !in_.ring.view().empty());
  }
  // Nothing moves any more, the peer writes to no memory that was granted, and the sink hears no
  // more of this link.
  void halt() noexcept {
    broken_ = true;
    queue_.clear();
    frames_.halt();
    const base::Locked lock(in_.mutex);
    in_.closed = true;
    in_.grants.clear();
  }

 private:
  struct Frame {
    transports::HeaderBytes header;
    std::span<const std::byte> payload;
    std::uint64_t number = 0;
    std::vector<std::byte> own{};  // the payload, where it is not borrowed
    std::size_t moved = 0;         // header bytes included
    // The payload goes straight to the memory that the receiver has granted, after so many progress
    // calls; the header waits until it is there.
    std::optional<std::uint64_t> late{};
    std::size_t bytes() const noexcept { return header.size() + payload.size(); }
    void own_payload() {
      if (own.empty()) own.assign(payload.begin(), payload.end());
      payload = own;
    }
  };
  template <class Fault>
  bool concerns(const Fault& fault) const noexcept {
    return fault.from == out_.from && fault.to == out_.to && fault.lane == out_.lane;
  }
  static bool is_eager(std::span<const std::byte> payload) noexcept {
    return payload.size() <= transports::eager_bytes;
  }
  bool is_open() const noexcept { return pipe_.state.load() == MemPipe::open; }
  bool stuck() const noexcept { return frames_.held() || frames_.closed(); }

  // Sending.

  transports::Send refuse(std::size_t room_needed) {
    refused_ = room_needed;
    out_.room_wanted.store(true);
    return transports::Send::full;
  }
  transports::Send enqueue(Frame frame) {
    const bool eager = is_eager(frame.payload);
    if (eager) frame.own_payload();
    queue_.push_back(std::move(frame));
    out_.room_wanted.store(true);
    return eager ? transports::Send::copied : transports::Send::queued;
  }
  // Whether the next frame's payload may go straight to its destination.
  bool is_granted(std::size_t payload_bytes) {
    if (out_.faults.grants == 0 || payload_bytes == 0 || cut_ || !flips_.empty()) return false;
    const base::Locked lock(out_.mutex);
    const MemRoute::Grant* const grant = out_.grant_for(taken_);
    return grant != nullptr && grant->destination.size() == payload_bytes;
  }
  // Writes the granted payloads whose time has come, wherever their frames stand in the queue. A
  // frame whose grant has been taken back goes through the ring like others.
  bool write_granted() {
    bool moved = false;
    for (Frame& frame : queue_) {
      if (!frame.late || (*frame.late)-- != 0) continue;
      frame.late.reset();
      moved = true;
      const base::Locked lock(out_.mutex);
      MemRoute::Grant* const grant = out_.grant_for(frame.number);
      if (grant == nullptr) continue;
      base::copy_bytes(grant->destination.data(), frame.payload.data(), frame.payload.size());
      grant->written = true;
      frame.payload = {};
    }
    return moved;
  }
  // Moves queued frames on and counts a stall down.
  bool send_queued() {
    if (!is_open()) return false;
    bool moved = write_granted();
    if (stall_ != 0 && --stall_ != 0) return moved;
    while (!queue_.empty() && !queue_.front().late) {
      moved |= push(queue_.front());
      if (queue_.front().moved != queue_.front().bytes()) break;
      // Out of the queue first: the sink may send the next frame from within sent().
      queue_.erase(queue_.begin());
      sink().sent(*this);
    }
    if (moved) out_.reader.ring();
    if (refused_ && may_try_again()) {
      refused_.reset();
      moved = true;
    }
    out_.room_wanted.store(!queue_.empty() || refused_);
    return moved;
  }
  bool ready_to_send() const noexcept {
    if (!is_open() || (queue_.empty() && !refused_)) return false;
    return stall_ != 0 || (!queue_.empty() && out_.ring.room() != 0) ||
           (refused_ && may_try_again());
  }
  bool may_try_again() const noexcept {
    return *refused_ == 0 ? queue_.size() < out_.faults.queue
                          : queue_.empty() && out_.ring.room() >= *refused_;
  }
  // Draws the next frame's stall when it is offered for the first time. True while it must be
  // refused.
  bool stalls() {
    if (out_.faults.stall != 0 && stall_drawn_ == taken_) {
      stall_ = std::max(stall_, out_.roll(MemRoute::stall, taken_, out_.faults.stall));
      refusing_ = out_.roll(MemRoute::coin, taken_, 1) != 0;
      ++stall_drawn_;
    }
    return stall_ != 0 && refusing_;
  }
  // Makes one bit of the frame wrong if a fault says so.
  void flip_bit(Frame& frame) {
    const auto flip = std::ranges::find_if(flips_, [&](const MemFaults::Flip& one) {
      return one.header ? one.frame == frame.number
                        : one.frame <= frame.number && !frame.payload.empty();
    });
    if (flip == flips_.end()) return;
    if (!flip->header) frame.own_payload();
    const std::span<std::byte> bytes =
        flip->header ? std::span<std::byte>(frame.header) : frame.own;
    const std::uint64_t bit = flip->bit % (8 * bytes.size());
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    flips_.erase(flip);
  }
  // Moves as much of the frame as there is room for, up to the cut.
  bool push(Frame& frame) {
    const std::size_t before = frame.moved;
    cut_if_due(false);
    if (frame.moved < frame.header.size())
      write(frame, std::span(frame.header).subspan(frame.moved));
    if (frame.moved >= frame.header.size())
      write(frame, frame.payload.subspan(frame.moved - frame.header.size()));
    cut_if_due(frame.moved == frame.bytes());
    return frame.moved != before;
  }
  // `bytes` begin at frame.moved.
  void write(Frame& frame, std::span<const std::byte> bytes) {
    if (bytes.empty() || !is_open()) return;
    if (cut_ && !cut_->clean)
      bytes = bytes.first(std::min<std::uint64_t>(bytes.size(), cut_->bytes - written_));
    const std::size_t count = out_.ring.write(bytes);
    frame.moved += count;
    written_ += count;
  }
  void cut_if_due(bool frame_ends) noexcept {
    if (!cut_ || written_ < cut_->bytes || (cut_->clean && !frame_ends)) return;
    pipe_.cut_after.store(written_);
    pipe_.end(cut_->clean ? MemPipe::closed : MemPipe::cut);
    out_.reader.ring();
  }

  // Receiving.

  bool receive() {
    if (in_.held.load()) return false;
    bool moved = false;
    budget_ = bytes_at_once;
    do {
      grant_ahead();
      if (!receive_step()) return moved;
      moved = true;
    } while (!stuck());
    return moved;
  }
  // Does the next thing that can be done. False: there is nothing.
  bool receive_step() {
    if (frames_.accepted()) return deliver();
    if (frames_.held()) return show_again();
    if (!frames_.collecting() || !collect_header()) return false;
    if (frames_.head_complete()) show();
    return true;
  }
  // Asks again for frames without a grant: the sink may know now what it could not say before.
  void grant_ahead() {
    if (stuck()) return;
    granted_ = std::max(granted_, frame_ + (frames_.accepted() ? 1 : 0));
    for (std::uint64_t frame = granted_; frame < frame_ + in_.faults.grants; ++frame) {
      const auto next = sink().expected(*this, static_cast<std::size_t>(frame - frame_));
      if (!next || next->destination == nullptr || next->bytes == 0) continue;
      if (frame == granted_) ++granted_;
      const base::Locked lock(in_.mutex);
      if (!in_.closed && in_.grant_for(frame) == nullptr)
        in_.grants.push_back({frame, {next->destination, next->bytes}});
    }
  }
  bool collect_header() {
    if (delay_ != 0 && --delay_ != 0) return false;
    const auto bytes = piece(frames_.head_rest().size());
    if (bytes.empty()) return false;
    if (in_.faults.delay != 0 && delay_drawn_ == frame_) {
      ++delay_drawn_;
      delay_ = in_.roll(MemRoute::delay, frame_, in_.faults.delay);
      if (delay_ != 0) return false;
    }
    std::memcpy(frames_.head_rest().data(), bytes.data(), bytes.size());
    frames_.head_came(bytes.size());
    consume(bytes.size());
    return true;
  }
  void show() {
    if (!frames_.show(*this)) return;
    if (in_.faults.grants != 0) end_grant();
    if (frames_.accepted() && frames_.left() == 0) finish();
  }
  // The header has been accepted: the payload may be there already, and no more of it is written.
  void end_grant() {
    const base::Locked lock(in_.mutex);
    const MemRoute::Grant* const grant = in_.grant_for(frame_);
    if (grant == nullptr) return;
    const transports::Receive& taken = frames_.receive();
    broken_promise_ =
        taken.destination != grant->destination.data() || taken.bytes != grant->destination.size();
    if (broken_promise_)
      frames_.halt();
    else if (grant->written)
      frames_.came(taken.bytes);
    std::erase_if(in_.grants, [&](const auto& one) { return one.frame == frame_; });
  }
  bool show_again() {
    const auto next = sink().expected(*this, 0);
    if (!next || frames_.closed()) return false;
    frames_.announce(next);
    show();
    return !frames_.held();
  }
  bool deliver() {
    const auto bytes = piece(frames_.left());
    if (bytes.empty()) return false;
    consume(frames_.take(*this, bytes));
    if (frames_.left() == 0) finish();
    return true;
  }
  void finish() {
    ++frame_;
    frames_.finish(*this);
  }
  // The next bytes, as far as budget and faults allow.
  std::span<const std::byte> piece(std::size_t most) const noexcept {
    std::size_t limit = std::min(most, budget_);
    if (const std::size_t split = in_.faults.split)
      limit = std::min<std::size_t>(limit,
                                    1 + in_.roll(MemRoute::piece, in_.ring.position(), split - 1));
    const auto view = in_.ring.view();
    return view.first(std::min(view.size(), limit));
  }
  void consume(std::size_t count) noexcept {
    budget_ -= count;
    in_.ring.consume(count);
    if (in_.room_wanted.load()) in_.writer.ring();
  }

  // The end.

  // Asked when the pipe has ended. True when every frame that came has been delivered, or when what
  // is left must wait for frames that will never go.
  bool over() const noexcept {
    if (stuck() && !queue_.empty()) return true;
    return in_.ring.view().empty() && !frames_.held() && delay_ == 0;
  }
  void break_off(std::error_code code, std::string_view what, bool clean) {
    broken_ = true;
    sink().broken(*this, code, what, clean);
  }

  MemPipe& pipe_;
  MemRoute &out_, &in_;
  bool broken_ = false;

  std::optional<MemFaults::Cut> cut_;
  std::vector<MemFaults::Flip> flips_;  // still to come
  std::vector<Frame> queue_;            // never grows beyond what was reserved
  std::uint64_t taken_ = 0;             // frames: the number of the next
  std::uint64_t written_ = 0;           // bytes
  std::uint64_t stall_drawn_ = 0;       // frames for which a stall has been drawn
  std::uint64_t stall_ = 0;             // progress calls for which nothing moves
  bool refusing_ = false;               // ... and nothing is taken over either
  // Full was answered, and it has not been shown since that there is room: in the ring, with
  // nothing queued before it; 0: a place in the queue.
  std::optional<std::size_t> refused_;

  transports::Assembler frames_;
  std::size_t budget_ = 0;         // bytes that this progress() may still deliver
  std::uint64_t frame_ = 0;        // number of the frame being received
  std::uint64_t granted_ = 0;      // the frames before it need no more grants
  std::uint64_t delay_drawn_ = 0;  // frames for which a delay has been drawn
  std::uint64_t delay_ = 0;        // progress calls for which the frame is not seen
  bool broken_promise_ = false;    // of the sink: a frame is not taken where it was granted
};

}  // namespace rondo::mem

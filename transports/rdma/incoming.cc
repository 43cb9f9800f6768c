// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/incoming.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace rondo::rdma {
namespace {

// The most bytes that one link delivers in one call of progress(), so that no link starves another.
constexpr std::size_t bytes_at_once = std::size_t{256} << 10;

}  // namespace

void Incoming::open(std::span<const std::byte> slots, std::size_t slot_bytes,
                    std::size_t slot_count, Path& control) {
  memory_ = slots;
  slot_bytes_ = slot_bytes;
  slots_.resize(slot_count);
  control_ = &control;
}

std::optional<PieceMark> Incoming::arrived(std::uint32_t bits) {
  auto mark = decode_mark(bits);
  if (!mark || mark->slot >= slots_.size() || slots_[mark->slot].come) {
    fault_ = Fault{Errc::corrupt, "it wrote a piece of a frame into a slot that it may not use"};
    return std::nullopt;
  }
  slots_[mark->slot] = {true, *mark};
  return mark;
}

const std::byte* Incoming::memory_of(std::uint64_t piece) const noexcept {
  return memory_.data() + piece % slots_.size() * (slot_head_bytes + slot_bytes_);
}

bool Incoming::pump(transports::Link& link) {
  bool moved = false;
  budget_ = bytes_at_once;
  while (!fault_ && !frames_.closed()) {
    bool more = false;
    if (frames_.accepted()) {
      more = budget_ != 0 && next_has_come() && deliver(link);
    } else if (frames_.collecting()) {
      more = budget_ != 0 && next_has_come();
      if (more) {
        // A copy, because the peer could write to the slot again.
        std::memcpy(frames_.head_rest().data(), memory_of(consumption_.taken), slot_head_bytes);
        frames_.head_came(slot_head_bytes);
        show(link);
      }
    } else if (frames_.held()) {
      more = show_again(link);
    }
    if (!more) break;
    moved = true;
    if (stuck()) break;
  }
  if (frames_.closed() || fault_) return moved;
  return look_ahead(link) || moved;
}

bool Incoming::look_ahead(transports::Link& link) {
  grant_ahead(link);
  return tell();
}

void Incoming::show(transports::Link& link) {
  if (!frames_.show(link)) return;
  if (frames_.left() != 0) return;
  piece_taken();
  finish(link);
}

bool Incoming::show_again(transports::Link& link) {
  const auto next = link.sink().expected(link, 0);
  if (!next || frames_.closed()) return false;
  frames_.announce(next);
  show(link);
  return !frames_.held();
}

// Takes payload of the next piece.
bool Incoming::deliver(transports::Link& link) {
  const PieceMark mark = slot(consumption_.taken).mark;
  if (mark.direct) {
    if (!take_direct(mark.large ? large_piece_bytes : slot_bytes_)) return false;
  } else {
    const std::byte* const payload = memory_of(consumption_.taken) + slot_head_bytes + offset_;
    const std::size_t bytes = std::min({slot_bytes_ - offset_, frames_.left(), budget_});
    const std::size_t taken = frames_.take(link, {payload, bytes});
    if (frames_.closed()) return false;
    offset_ += taken;
    budget_ -= taken;
    if (offset_ < slot_bytes_ && frames_.left() != 0) return true;
    piece_taken();
  }
  if (frames_.left() == 0) finish(link);
  return true;
}

// The payload of this piece is in its destination already, if that was granted for this frame.
bool Incoming::take_direct(std::size_t piece_bytes) {
  const Promise& made = promise(frame_);
  const transports::Receive& frame = frames_.receive();
  if (!made.made || made.receive.destination != frame.destination ||
      made.receive.bytes != frame.bytes) {
    fault_ = Fault{Errc::corrupt, "it says that it wrote a frame to memory that was not granted"};
    return false;
  }
  const std::size_t bytes = std::min(piece_bytes, frames_.left());
  frames_.came(bytes);
  budget_ -= std::min(budget_, bytes);
  piece_taken();
  return true;
}

void Incoming::piece_taken() noexcept {
  slot(consumption_.taken).come = false;
  ++consumption_.taken;
  offset_ = 0;
}

void Incoming::finish(transports::Link& link) {
  promise(frame_).made = false;
  ++frame_;
  frames_.finish(link);
}

// The sink's answers come in order: no answer for a frame ends the look ahead for now.
void Incoming::grant_ahead(transports::Link& link) {
  if (!grants_wanted_ || stuck() || regions_.empty()) return;
  for (std::size_t ahead = frames_.accepted() ? 1 : 0; ahead < frames_ahead; ++ahead) {
    Promise& made = promise(frame_ + ahead);
    if (made.made) continue;
    if (untold_count_ == untold_.size()) return;
    const auto next = link.sink().expected(link, ahead);
    if (!next) return;
    if (next->destination == nullptr || next->bytes < least_granted) continue;
    const Keys* const keys = regions_.find(next->destination, next->bytes);
    if (keys == nullptr) continue;
    made = {true, *next};
    untold_[untold_count_++] = {frame_ + ahead, reinterpret_cast<std::uintptr_t>(next->destination),
                                next->bytes, keys->remote};
  }
}

// Tells the peer of grants and of consumed pieces. True when a message was sent.
bool Incoming::tell() {
  if (!must_tell() || !control_->has_room(1)) return false;
  ControlBytes bytes;
  const std::size_t count =
      encode(consumption_.taken, std::span(untold_).first(untold_count_), bytes);
  Request message{.kind = Request::Kind::message};
  message.part_count = 1;
  message.inlined = count <= control_->most_inline();
  SendPool::Piece cell;
  std::uint32_t key = 0;
  if (!message.inlined) {
    cell = pool_.take_cell();
    if (cell.number < 0) return false;
    std::memcpy(cell.memory, bytes.data(), count);
    key = pool_.keys().local[control_->device_index()];
  }
  const std::byte* const from = message.inlined ? bytes.data() : cell.memory;
  message.parts[0] = {reinterpret_cast<std::uintptr_t>(from), static_cast<std::uint32_t>(count),
                      key};
  if (const int error = control_->post(message, {.piece = cell.number}); error != 0) {
    fault_ =
        Fault{Errc::system,
              control_->route() + ": the device refuses a message: " + base::describe_errno(error)};
    return false;
  }
  consumption_.told = consumption_.taken;
  untold_count_ = 0;
  return true;
}

}  // namespace rondo::rdma

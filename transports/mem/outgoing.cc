// SPDX-License-Identifier: Apache-2.0
#include "transports/mem/outgoing.h"

#include <algorithm>

namespace rondo::mem {

namespace {

template <class Fault>
bool concerns(const Fault& fault, const MemOutgoing::Route& route) noexcept {
  return fault.from == route.from && fault.to == route.to && fault.lane == route.lane;
}

}  // namespace

MemOutgoing::MemOutgoing(const Route& route, MemPipe& pipe, MemBell& reader,
                         const MemFaults& faults, const MemDice& dice)
    : route_(route), pipe_(pipe), reader_(reader), faults_(faults), dice_(dice) {
  for (const auto& cut : faults.cuts)
    if (concerns(cut, route)) cut_ = cut;
  for (const auto& flip : faults.flips)
    if (concerns(flip, route)) flips_.push_back(flip);
  queue_.reserve(faults.queue);
}

transports::Send MemOutgoing::send(const transports::HeaderBytes& header,
                                   std::span<const std::byte> payload) {
  if (pipe_.state.load() != MemPipe::open)
    return transports::Send::full;  // the end is told at the next progress
  if (stalls() || queue_.size() == faults_.queue) return refuse(0);
  if (granted(payload.size())) {
    Frame frame{header, payload, {}, 0, {}};
    frame.direct = true;
    frame.number = frames_++;
    frame.late = dice_.roll(MemDice::late, frame.number, std::uint64_t{faults_.late} + 1);
    const transports::Send answer = enqueue(std::move(frame));
    write_granted();
    return answer;
  }
  // A small frame goes at once or not at all, so that a link needs no memory for it; unless it
  // never goes at once.
  const bool eager = payload.size() <= transports::eager_bytes;
  const std::size_t bytes = header.size() + payload.size();
  if (eager && bytes <= faults_.capacity && stall_ == 0 && (waiting() || ring().room() < bytes))
    return refuse(bytes);
  ++frames_;
  Frame frame{header, payload, take_flip(payload.size()), 0, {}};
  if (queue_.empty() && stall_ == 0) {
    if (push(frame)) reader_.ring();
    if (frame.moved == frame.bytes()) return transports::Send::done;
  }
  return enqueue(std::move(frame));
}

transports::Send MemOutgoing::enqueue(Frame frame) {
  pipe_.room_wanted[route_.direction].store(true);
  const bool eager = frame.payload.size() <= transports::eager_bytes;
  if (eager) {
    frame.own.assign(frame.payload.begin(), frame.payload.end());
    frame.payload = frame.own;
  }
  queue_.push_back(std::move(frame));
  return eager ? transports::Send::copied : transports::Send::queued;
}

// Whether the next frame's payload may go straight to its destination.
bool MemOutgoing::granted(std::size_t payload_bytes) const {
  return faults_.grants != 0 && payload_bytes != 0 && !cut_ && flips_.empty() &&
         pipe_.grants[route_.direction].covers(frames_, payload_bytes);
}

// Writes the granted payloads whose time has come, wherever their frames stand in the queue. A
// frame whose grant has been taken back goes through the ring like others.
bool MemOutgoing::write_granted() {
  bool moved = false;
  for (Frame& frame : queue_) {
    if (!frame.direct || (frame.late != 0 && frame.late-- != 0)) continue;
    frame.direct = false;
    if (pipe_.grants[route_.direction].write(frame.number, frame.payload)) frame.payload = {};
    moved = true;
  }
  return moved;
}

bool MemOutgoing::pump(transports::Link& link) {
  if (pipe_.state.load() != MemPipe::open) return false;
  bool moved = write_granted();
  if (stall_ != 0 && --stall_ != 0) return moved;
  while (!queue_.empty() && !queue_.front().direct) {
    moved |= push(queue_.front());
    if (queue_.front().moved != queue_.front().bytes()) break;
    // Out of the queue first: the sink may send the next frame from within sent().
    queue_.erase(queue_.begin());
    link.sink().sent(link);
  }
  if (moved) reader_.ring();
  if (refused_ && may_try_again()) {
    refused_ = false;
    moved = true;
  }
  pipe_.room_wanted[route_.direction].store(waiting() || refused_);
  return moved;
}

bool MemOutgoing::ready() const noexcept {
  if (pipe_.state.load() != MemPipe::open) return false;
  if (!waiting() && !refused_) return false;
  return stall_ != 0 || (waiting() && ring().room() != 0) || (refused_ && may_try_again());
}

transports::Send MemOutgoing::refuse(std::size_t room_needed) {
  refused_ = true;
  room_needed_ = room_needed;
  pipe_.room_wanted[route_.direction].store(true);
  return transports::Send::full;
}

bool MemOutgoing::may_try_again() const noexcept {
  return room_needed_ == 0 ? queue_.size() < faults_.queue
                           : !waiting() && ring().room() >= room_needed_;
}

// Draws the next frame's stall when it is offered for the first time. True while it must be
// refused.
bool MemOutgoing::stalls() {
  if (faults_.stall != 0 && stall_drawn_ == frames_) {
    stall_ =
        std::max(stall_, dice_.roll(MemDice::stall, frames_, std::uint64_t{faults_.stall} + 1));
    refusing_ = dice_.roll(MemDice::coin, frames_, 2) != 0;
    ++stall_drawn_;
  }
  return stall_ != 0 && refusing_;
}

// The wrong bit, if any, of the frame that is being taken over.
std::optional<std::uint64_t> MemOutgoing::take_flip(std::size_t payload_bytes) {
  const std::uint64_t number = frames_ - 1;
  for (auto flip = flips_.begin(); flip != flips_.end(); ++flip) {
    const std::size_t bytes = flip->header ? transports::frame_header_bytes : payload_bytes;
    if (bytes == 0 || (flip->header ? flip->frame != number : flip->frame > number)) continue;
    const std::uint64_t bit =
        (flip->header ? 0 : 8 * transports::frame_header_bytes) + flip->bit % (8 * bytes);
    flips_.erase(flip);
    return bit;
  }
  return std::nullopt;
}

// Moves as much of the frame as there is room for, up to the cut.
bool MemOutgoing::push(Frame& frame) {
  const std::size_t before = frame.moved;
  cut_if_due(false);
  if (frame.moved < frame.header.size()) write(frame, std::span(frame.header).subspan(frame.moved));
  if (frame.moved >= frame.header.size() && frame.moved < frame.bytes())
    write(frame, frame.payload.subspan(frame.moved - frame.header.size()));
  cut_if_due(frame.moved == frame.bytes());
  return frame.moved != before;
}

// `bytes` begin at frame.moved. False when not all were taken.
bool MemOutgoing::write(Frame& frame, std::span<const std::byte> bytes) {
  if (pipe_.state.load() != MemPipe::open) return false;
  if (cut_ && !cut_->clean)
    bytes = bytes.first(std::min<std::uint64_t>(bytes.size(), cut_->bytes - written_));
  const auto put = [&](std::span<const std::byte> part) {
    const std::size_t count = ring().write(part);
    frame.moved += count;
    written_ += count;
    return count == part.size();
  };
  // Huge when already past.
  const std::size_t wrong = frame.flip ? *frame.flip / 8 - frame.moved : bytes.size();
  if (wrong >= bytes.size()) return put(bytes);
  const std::byte flipped = bytes[wrong] ^ static_cast<std::byte>(1u << (*frame.flip % 8));
  return put(bytes.first(wrong)) && put(std::span(&flipped, 1)) && put(bytes.subspan(wrong + 1));
}

void MemOutgoing::cut_if_due(bool frame_ends) noexcept {
  if (!cut_ || written_ < cut_->bytes || (cut_->clean && !frame_ends)) return;
  pipe_.cut_after.store(written_);
  pipe_.end(cut_->clean ? MemPipe::closed : MemPipe::cut);
  reader_.ring();
}

}  // namespace rondo::mem

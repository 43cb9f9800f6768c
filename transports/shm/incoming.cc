// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/incoming.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transports/shm/ring.h"

namespace rondo::shm {
namespace {

// The most bytes that one link delivers in one call of progress(), so that no link starves another.
constexpr std::size_t bytes_at_once = std::size_t{256} << 10;
constexpr std::size_t read_piece_bytes = std::size_t{64} << 10;
// This rank tells the peer what it has consumed in steps of a quarter of the ring. So a small frame
// does not make the peer read this rank's cache line again. Such a step is less than the room that
// the largest small frame leaves free, so no peer waits for room that nobody has told it of.
constexpr std::size_t lazy_steps = 4;

}  // namespace

// Looks at the peer's cache line.
std::uint64_t ShmIncoming::produced() const noexcept {
  const std::uint64_t produced =
      peer_.other.produced[static_cast<std::size_t>(lane_)].load(std::memory_order_acquire);
  if (produced < produced_ || produced > consumed_ + ring_bytes_ || produced % ring_unit != 0)
    corrupt_ = true;
  else
    produced_ = produced;
  return produced_;
}

// How many bytes of the payload under way may be read. A small frame has come whole.
std::size_t ShmIncoming::payload_came() const noexcept {
  if (frames_.receive().bytes <= whole_bytes) return frames_.left();
  if (produced_ <= consumed_ && produced() <= consumed_) return 0;
  return static_cast<std::size_t>(produced_ - consumed_);
}

void ShmIncoming::tell_consumed(std::uint64_t step) noexcept {
  if (consumed_ - told_ < step) return;
  told_ = consumed_;
  peer_.consumed(lane_, consumed_ / ring_unit * ring_unit);
  peer_.wake();
}

bool ShmIncoming::pump(transports::Link& link) {
  bool moved = false;
  budget_ = bytes_at_once;
  for (;;) {
    bool more = false;
    if (frames_.accepted())
      more = place_awaited_        ? take_place()
             : referenced_.empty() ? deliver(link)
                                   : deliver_referenced(link);
    else if (frames_.collecting())
      more = budget_ != 0 && take_header(link);
    else if (frames_.held())
      more = show_again(link);
    if (!more) return moved;
    moved = true;
    if (stuck()) return moved;
  }
}

// The words are copied before the header is checked, because the peer may write to them afterwards.
bool ShmIncoming::take_header(transports::Link& link) {
  const std::uint64_t first = first_word(here()).load(std::memory_order_acquire);
  if (first == 0) return false;
  const std::uint64_t mask = first ^ header_mark;
  if (mask > every_word) {
    corrupt_ = true;
    return false;
  }
  std::byte* const header = frames_.head_rest().data();  // the last one
  std::uint64_t at = consumed_;
  for (std::uint64_t left = mask; left != 0; left &= left - 1) {
    at += sizeof(RingWord);
    const std::uint64_t word =
        first_word(ring_ + in_ring(at, ring_bytes_)).load(std::memory_order_relaxed);
    const auto which = static_cast<std::size_t>(std::countr_zero(left));
    std::memcpy(header + which * sizeof word, &word, sizeof word);
  }
  frames_.head_came(transports::frame_header_bytes);
  consumed_ += header_bytes(mask);
  budget_ -= std::min(budget_, header_bytes(mask));
  show(link);
  return true;
}

void ShmIncoming::show(transports::Link& link) {
  if (!frames_.show(link)) return;
  place_awaited_ = has_place(frames_.left());
  if (frames_.left() == 0) finish(link);
}

bool ShmIncoming::show_again(transports::Link& link) {
  const auto next = link.sink().expected(link, 0);
  if (!next || frames_.closed()) return false;
  frames_.announce(next);
  show(link);
  return !frames_.held();
}

// The place is copied before it is checked, because the peer may write to it afterwards.
bool ShmIncoming::take_place() {
  PayloadPlace place;
  std::memcpy(&place, here(), sizeof place);
  consumed_ += ring_unit;
  place_awaited_ = false;
  const auto& [slot, generation, offset] = place.window;
  if (generation == 0) return true;
  const std::size_t bytes = frames_.left();
  if (const std::byte* const data = imports_.map(place.window, bytes); data != nullptr) {
    referenced_ = {data, bytes};
    return true;
  }
  bad_place_ = fmt::format(
      "it sent a frame whose payload is outside its shared memory: {} bytes at offset {} of extent "
      "{}",
      bytes, offset, slot);
  frames_.halt();
  return false;
}

bool ShmIncoming::deliver(transports::Link& link) {
  const std::size_t bytes =
      std::min({frames_.left(), budget_, ring_bytes_ - in_ring(consumed_, ring_bytes_),
                read_piece_bytes, payload_came()});
  if (bytes == 0) return false;
  const std::size_t taken = frames_.take(link, {here(), bytes});
  consumed_ += taken;
  budget_ -= taken;
  if (frames_.left() == 0)
    finish(link);
  else
    tell_consumed(ring_bytes_ / lazy_steps);
  return true;
}

// Counts bytes only if the peer had not stopped when this rank had read them: until then no caller
// there can have written over them. The peer waits for the end of such a frame, so this rank tells
// it at once.
bool ShmIncoming::deliver_referenced(transports::Link& link) {
  const std::size_t bytes = std::min({referenced_.size(), budget_, read_piece_bytes});
  if (bytes == 0) return false;
  const std::size_t taken = frames_.take(link, referenced_.first(bytes));
  if (frames_.closed()) return false;
  if (peer_.stopped()) {
    cut_ = true;
    frames_.halt();
    return false;
  }
  referenced_ = referenced_.subspan(taken);
  budget_ -= taken;
  if (!referenced_.empty()) return true;
  tell_consumed(ring_unit);
  frames_.finish(link);
  return true;
}

// Skips the padding after the payload, up to a whole unit.
void ShmIncoming::finish(transports::Link& link) {
  consumed_ = whole_units(consumed_);
  tell_consumed(ring_bytes_ / lazy_steps);
  frames_.finish(link);
}

}  // namespace rondo::shm

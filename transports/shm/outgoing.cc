// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/outgoing.h"

#include <algorithm>
#include <cstring>

#include "base/copy.h"

namespace rondo::shm {
namespace {

// A large payload is copied in parts of this size, so that the peer can read one part while the
// next is copied.
constexpr std::size_t written_piece_bytes = std::size_t{32} << 10;
constexpr std::uint64_t cleared_ahead = 31 * ring_unit;
// A large frame is begun when there is room for this many bytes of its payload.
constexpr std::size_t worth_beginning = std::size_t{16} << 10;

}  // namespace

// The room in whole units, but for the one that stays free. It reads the peer's cache line, so
// callers first check whether the room that they know of is enough.
std::size_t ShmOutgoing::room() const noexcept {
  const std::uint64_t consumed =
      peer_.other.consumed[static_cast<std::size_t>(lane_)].load(std::memory_order_acquire);
  if (consumed < consumed_ || consumed > produced_) {
    corrupt_ = true;
    return 0;
  }
  consumed_ = consumed;
  return known_room();
}

transports::Send ShmOutgoing::refuse(std::size_t needed) noexcept {
  refused_ = true;
  needed_ = needed;
  return transports::Send::full;
}

transports::Send ShmOutgoing::queue(std::uint64_t until) noexcept {
  ++queued_count_;
  last_queued() = until;
  return transports::Send::queued;
}

transports::Send ShmOutgoing::send(const transports::HeaderBytes& header,
                                   std::span<const std::byte> payload) {
  const bool large = has_place(payload.size());
  constexpr std::size_t most_header = header_bytes(every_word);
  const std::size_t needed = large ? most_header + sizeof(PayloadPlace) + worth_beginning
                                   : most_header + whole_units(payload.size());
  if (copying_ || corrupt_ || queued_count_ == most_queued) return refuse(needed);
  if (known_room() < needed && room() < needed) return refuse(needed);
  const std::uint64_t head = produced_, mask = put_header(header);
  if (payload.size() <= whole_bytes) {
    clear_words(produced_ + whole_units(payload.size()), payload.empty() ? cleared_ahead : 0);
    if (!payload.empty()) copy_whole(payload);
    tell(head, mask);
    peer_.wake();
    return transports::Send::done;
  }
  if (large) {
    const PayloadPlace where{windows_.find(payload.data(), payload.size())};
    std::memcpy(place(produced_), &where, sizeof where);
    produced_ += ring_unit;
    if (where.window.generation != 0) {
      clear_words(produced_);
      tell(head, mask);
      peer_.wake();
      return queue(produced_);
    }
  }
  payload_ = payload;
  put_piece();
  tell(head, mask);
  if (!payload_.empty()) peer_.wake();  // to read the first part meanwhile
  copying_ = !put();
  peer_.wake();
  return copying_ ? queue(not_copied) : transports::Send::done;
}

// Afterwards the word is 0 where the next header begins, and so are those of some units ahead: to
// clear one that the receiver already reads would fetch its line twice for each message.
void ShmOutgoing::clear_words(std::uint64_t next, std::uint64_t ahead) noexcept {
  if (cleared_ > next) return;
  const std::uint64_t end = std::min(next + ahead + ring_unit, consumed_ + ring_bytes_);
  cleared_ = std::max(cleared_, next);
  for (; cleared_ < end; cleared_ += ring_unit)
    first_word(place(cleared_)).store(0, std::memory_order_relaxed);
}

// By words, as the sink's code stores them: a wider load of what was just stored waits for the
// store buffer.
std::uint64_t ShmOutgoing::put_header(const transports::HeaderBytes& header) noexcept {
  std::uint64_t mask = 0, at = produced_;
  for (std::size_t i = 0; i < last_.size(); ++i) {
    std::uint64_t word;
    std::memcpy(&word, header.data() + i * sizeof word, sizeof word);
    if (word == last_[i]) continue;
    last_[i] = word;
    mask |= std::uint64_t{1} << i;
    first_word(place(at += sizeof word)).store(word, std::memory_order_relaxed);
  }
  produced_ += header_bytes(mask);
  return mask;
}

// The header, and everything before it, is there for the peer.
void ShmOutgoing::tell(std::uint64_t head, std::uint64_t mask) noexcept {
  first_word(place(head)).store(header_mark | mask, std::memory_order_release);
  if (lane_ != transports::Lane::messages || head == 0) peer_.changed();
}

void ShmOutgoing::copy_whole(std::span<const std::byte> payload) noexcept {
  const std::size_t front = std::min(payload.size(), ring_bytes_ - in_ring(produced_, ring_bytes_));
  base::copy_bytes(place(produced_), payload.data(), front);
  if (front < payload.size())
    base::copy_bytes(ring_, payload.data() + front, payload.size() - front);
  produced_ += whole_units(payload.size());
}

// False when there is no room as far as this rank knows.
bool ShmOutgoing::put_piece() noexcept {
  const std::size_t to_end = ring_bytes_ - in_ring(produced_, ring_bytes_);
  const std::size_t bytes = std::min({payload_.size(), known_room(), to_end, written_piece_bytes});
  if (bytes == 0) return false;
  base::copy_bytes(place(produced_), payload_.data(), bytes);
  payload_ = payload_.subspan(bytes);
  produced_ += whole_units(bytes);
  if (payload_.empty()) clear_words(produced_);
  peer_.produced(lane_, produced_);
  return true;
}

// Copies as much of the payload as there is room for. True when that was all.
bool ShmOutgoing::put() {
  while (!payload_.empty())
    if (!put_piece() && room() == 0) return false;
  return true;
}

bool ShmOutgoing::pump(transports::Link& link) {
  if (corrupt_) return false;
  bool moved = false;
  if (copying_) {
    const std::uint64_t before = produced_;
    copying_ = !put();
    moved = produced_ != before;
    if (moved) peer_.wake();
    if (!copying_) last_queued() = copied;
  }
  if (waiting()) room();
  while (first_is_sent()) {
    // Out of the queue first: the sink may send the next frame from within sent().
    first_queued_ = (first_queued_ + 1) % most_queued;
    --queued_count_;
    moved = true;
    link.sink().sent(link);
  }
  if (may_try_again()) {
    refused_ = false;
    moved = true;
  }
  return moved;
}

bool ShmOutgoing::ready() const noexcept {
  if (corrupt_ || (!waiting() && !refused_)) return false;
  const std::size_t free = room();
  return (copying_ && free >= ring_unit) || first_is_sent() || may_try_again();
}

}  // namespace rondo::shm

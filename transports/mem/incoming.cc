// SPDX-License-Identifier: Apache-2.0
#include "transports/mem/incoming.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace rondo::mem {

namespace {
// What one link may deliver in one progress call, so that no link starves another.
constexpr std::size_t bytes_at_once = std::size_t{256} << 10;
}  // namespace

MemIncoming::MemIncoming(MemRing& ring, std::atomic<bool>& room_wanted, MemBell& writer,
                         const MemFaults& faults, const MemDice& dice)
    : ring_(ring), room_wanted_(room_wanted), writer_(writer), faults_(faults), dice_(dice) {}

bool MemIncoming::pump(transports::Sink& sink, transports::Link& link) {
  bool moved = false;
  budget_ = bytes_at_once;
  for (;;) {
    bool more = false;
    switch (state_) {
      case State::header:
        more = collect_header();
        if (more && have_ == header_.size()) show(sink, link);
        break;
      case State::shown:
        more = sink.expected(link) && show(sink, link);
        break;
      case State::payload:
        more = deliver(sink, link);
        break;
      case State::refused:
        break;
    }
    if (!more) return moved;
    moved = true;
    if (stuck()) return moved;
  }
}

bool MemIncoming::collect_header() {
  if (delay_ != 0 && --delay_ != 0) return false;
  const auto bytes = piece(header_.size() - have_);
  if (bytes.empty()) return false;
  if (faults_.delay != 0 && delay_drawn_ == frame_) {
    ++delay_drawn_;
    delay_ = dice_.roll(MemDice::delay, frame_, std::uint64_t{faults_.delay} + 1);
    if (delay_ != 0) return false;
  }
  std::memcpy(header_.data() + have_, bytes.data(), bytes.size());
  have_ += bytes.size();
  consume(bytes.size());
  return true;
}

// Asks the sink about a complete header. False while it is on hold.
bool MemIncoming::show(transports::Sink& sink, transports::Link& link) {
  switch (sink.arrived(link, header_)) {
    case transports::Header::hold:
      state_ = State::shown;
      return false;
    case transports::Header::refuse:
      state_ = State::refused;
      return true;
    case transports::Header::accept:
      break;
  }
  const auto receive = sink.expected(link);
  assert(receive && "a sink that accepts a frame announces it");
  receive_ = *receive;
  state_ = State::payload;
  have_ = 0;
  if (receive_.bytes == 0) finish(sink, link);
  return true;
}

bool MemIncoming::deliver(transports::Sink& sink, transports::Link& link) {
  const auto bytes = piece(receive_.bytes - have_);
  if (bytes.empty()) return false;
  std::size_t taken = bytes.size();
  if (receive_.destination != nullptr)
    std::memcpy(receive_.destination + have_, bytes.data(), bytes.size());
  else
    taken = lend(sink, link, bytes);
  have_ += taken;
  consume(taken);
  if (have_ == receive_.bytes) finish(sink, link);
  return true;
}

// Shows the sink a piece that follows rest_. What it does not use is fewer than 16 bytes and is
// kept in rest_. Returns how many bytes of the piece are done with.
std::size_t MemIncoming::lend(transports::Sink& sink, transports::Link& link,
                              std::span<const std::byte> piece) {
  std::span<const std::byte> view = piece;
  std::size_t taken = piece.size();
  if (rest_bytes_ != 0) {
    taken = std::min(piece.size(), rest_.size() - rest_bytes_);
    std::memcpy(rest_.data() + rest_bytes_, piece.data(), taken);
    view = std::span(rest_).first(rest_bytes_ + taken);
  }
  const std::size_t used = sink.data(link, view);
  assert(used <= view.size() && view.size() - used < 16 && "a sink leaves less than one element");
  rest_bytes_ = view.size() - used;
  std::memmove(rest_.data(), view.data() + used, rest_bytes_);
  return taken;
}

void MemIncoming::finish(transports::Sink& sink, transports::Link& link) {
  assert(rest_bytes_ == 0 && "frames end with whole elements");
  state_ = State::header;
  have_ = 0;
  ++frame_;
  sink.received(link);
}

// The next bytes, as far as budget and faults allow.
std::span<const std::byte> MemIncoming::piece(std::size_t most) const noexcept {
  std::size_t limit = std::min(most, budget_);
  if (faults_.split != 0)
    limit = std::min<std::size_t>(limit,
                                  1 + dice_.roll(MemDice::piece, ring_.position(), faults_.split));
  const auto view = ring_.view();
  return view.first(std::min(view.size(), limit));
}

void MemIncoming::consume(std::size_t count) noexcept {
  budget_ -= count;
  ring_.consume(count);
  if (room_wanted_.load()) writer_.ring();
}

}  // namespace rondo::mem

// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/incoming.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "transports/shm/outgoing.h"

namespace rondo::shm {
namespace {

// What one link may deliver in one progress call, so that no link starves another.
constexpr std::size_t bytes_at_once = std::size_t{256} << 10;
constexpr std::size_t piece_bytes = std::size_t{64} << 10;

}  // namespace

std::uint64_t ShmIncoming::available() const noexcept {
  const std::uint64_t produced =
      peer_.other.produced[static_cast<std::size_t>(lane_)].load(std::memory_order_acquire);
  if (produced < produced_ || produced < consumed_ || produced - consumed_ > ring_bytes_ ||
      produced % ring_unit != 0) {
    corrupt_ = true;
    return 0;
  }
  produced_ = produced;
  return produced - consumed_;
}

// The peer is told in large steps: a small frame costs it no second look at this rank's line. A
// quarter of the ring is less than what the largest small frame leaves free, so nobody waits for
// room that has not been told.
void ShmIncoming::tell_consumed() noexcept {
  if (consumed_ - told_ < ring_bytes_ / 4) return;
  told_ = consumed_;
  peer_.consumed(lane_, consumed_ / ring_unit * ring_unit);
  peer_.wake();
}

bool ShmIncoming::pump(transports::Sink& sink, transports::Link& link) {
  bool moved = false;
  budget_ = bytes_at_once;
  for (;;) {
    bool more = false;
    switch (state_) {
      case State::header:
        more = budget_ != 0 && take_header(sink, link);
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

// Headers never lie across the end of the ring. The copy is what is judged, whatever the peer
// writes there afterwards.
bool ShmIncoming::take_header(transports::Sink& sink, transports::Link& link) {
  if (produced_ - consumed_ < ring_unit && available() < ring_unit) return false;
  std::memcpy(header_.data(), ring_ + consumed_ % ring_bytes_, header_.size());
  consumed_ += ring_unit;
  budget_ -= std::min(budget_, ring_unit);
  show(sink, link);
  return true;
}

// Asks the sink about a complete header. False while it is on hold.
bool ShmIncoming::show(transports::Sink& sink, transports::Link& link) {
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

bool ShmIncoming::deliver(transports::Sink& sink, transports::Link& link) {
  std::uint64_t come = produced_ - consumed_;
  if (come == 0) come = available();
  const std::size_t place = consumed_ % ring_bytes_;
  const std::size_t bytes = std::min({receive_.bytes - have_, budget_, ring_bytes_ - place,
                                      piece_bytes, static_cast<std::size_t>(come)});
  if (bytes == 0) return false;
  const std::span<const std::byte> piece(ring_ + place, bytes);
  std::size_t taken = bytes;
  if (receive_.destination != nullptr)
    std::memcpy(receive_.destination + have_, piece.data(), bytes);
  else
    taken = lend(sink, link, piece);
  have_ += taken;
  consumed_ += taken;
  budget_ -= taken;
  if (have_ == receive_.bytes)
    finish(sink, link);
  else
    tell_consumed();
  return true;
}

// Shows the sink a piece that follows rest_. What it does not use is fewer than 16 bytes and is
// kept in rest_. Returns how many bytes of the piece are done with.
std::size_t ShmIncoming::lend(transports::Sink& sink, transports::Link& link,
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

// What fills up the last unit of a payload goes with it.
void ShmIncoming::finish(transports::Sink& sink, transports::Link& link) {
  assert(rest_bytes_ == 0 && "frames end with whole elements");
  consumed_ = whole_units(consumed_);
  state_ = State::header;
  tell_consumed();
  sink.received(link);
}

}  // namespace rondo::shm

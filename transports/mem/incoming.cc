// SPDX-License-Identifier: Apache-2.0
#include "transports/mem/incoming.h"

#include <algorithm>
#include <cstring>

namespace rondo::mem {

namespace {
// Bounds what one link may deliver in one progress call, so that no link starves another.
constexpr std::size_t bytes_at_once = std::size_t{256} << 10;
}  // namespace

MemIncoming::MemIncoming(MemPipe& pipe, int direction, MemBell& writer, const MemFaults& faults,
                         const MemDice& dice)
    : ring_(pipe.rings[direction]),
      grants_(pipe.grants[direction]),
      room_wanted_(pipe.room_wanted[direction]),
      held_(pipe.held[direction]),
      writer_(writer),
      faults_(faults),
      dice_(dice),
      granted_(faults.grants) {}

bool MemIncoming::pump(transports::Link& link) {
  if (held_.load()) return false;
  bool moved = false;
  budget_ = bytes_at_once;
  for (;;) {
    grant_ahead(link);
    bool more = false;
    if (frames_.accepted()) {
      more = deliver(link);
    } else if (frames_.collecting()) {
      more = collect_header();
      if (more && frames_.head_complete()) show(link);
    } else if (frames_.held()) {
      more = show_again(link);
    }
    if (!more) return moved;
    moved = true;
    if (stuck()) return moved;
  }
}

// Each time: what the sink could not say before, it may know now.
void MemIncoming::grant_ahead(transports::Link& link) {
  if (stuck()) return;
  for (std::size_t ahead = frames_.accepted() ? 1 : 0; ahead < granted_.size(); ++ahead) {
    if (granted_[ahead]) continue;
    const auto next = link.sink().expected(link, ahead);
    if (!next || next->destination == nullptr || next->bytes == 0) continue;
    grants_.grant(frame_ + ahead, {next->destination, next->bytes});
    granted_[ahead] = true;
  }
}

bool MemIncoming::collect_header() {
  if (delay_ != 0 && --delay_ != 0) return false;
  const auto bytes = piece(frames_.head_rest().size());
  if (bytes.empty()) return false;
  if (faults_.delay != 0 && delay_drawn_ == frame_) {
    ++delay_drawn_;
    delay_ = dice_.roll(MemDice::delay, frame_, std::uint64_t{faults_.delay} + 1);
    if (delay_ != 0) return false;
  }
  std::memcpy(frames_.head_rest().data(), bytes.data(), bytes.size());
  frames_.head_came(bytes.size());
  consume(bytes.size());
  return true;
}

void MemIncoming::show(transports::Link& link) {
  if (!frames_.show(link)) return;
  if (const auto grant = granted_.empty() ? std::nullopt : grants_.take(frame_)) {
    const transports::Receive& taken = frames_.receive();
    broken_promise_ =
        taken.destination != grant->destination.data() || taken.bytes != grant->destination.size();
    if (broken_promise_) return frames_.halt();
    if (grant->written) frames_.came(taken.bytes);
  }
  if (frames_.left() == 0) finish(link);
}

bool MemIncoming::show_again(transports::Link& link) {
  const auto next = link.sink().expected(link, 0);
  if (!next || frames_.closed()) return false;
  frames_.announce(next);
  show(link);
  return !frames_.held();
}

bool MemIncoming::deliver(transports::Link& link) {
  const auto bytes = piece(frames_.left());
  if (bytes.empty()) return false;
  const std::size_t taken = frames_.take(link, bytes);
  consume(taken);
  if (frames_.left() == 0) finish(link);
  return true;
}

void MemIncoming::finish(transports::Link& link) {
  ++frame_;
  if (!granted_.empty()) {
    granted_.erase(granted_.begin());
    granted_.push_back(false);
  }
  frames_.finish(link);
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

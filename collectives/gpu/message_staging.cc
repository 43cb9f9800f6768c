// SPDX-License-Identifier: Apache-2.0
#include "collectives/gpu/message_staging.h"

#include <algorithm>
#include <utility>

#include "collectives/point/message_operation.h"

namespace rondo::gpu {

using point::Request;
using point::Slot;

MessageSlots::MessageSlots(std::byte* memory) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    all_[i].small = i < small_count;
    all_[i].memory = memory;
    memory += all_[i].small ? transports::eager_bytes : point::point_piece_bytes;
  }
  clear();
}

Slot* MessageSlots::take(std::size_t bytes) noexcept {
  Kind& its_kind = kind(is_small(bytes));
  Slot* const slot = its_kind.free.pop();
  if (slot == nullptr) return nullptr;
  --its_kind.count;
  slot->loaded = slot->lent = false;
  return slot;
}

void MessageSlots::give(Slot& slot) noexcept {
  Kind& its_kind = kind(slot.small);
  its_kind.free.push(slot);
  ++its_kind.count;
}

void MessageSlots::clear() noexcept {
  small_ = large_ = {};
  for (Slot& slot : all_) give(slot);
}

MessageStaging::Copy MessageStaging::Copies::pop() noexcept {
  const Copy copy = items[first];
  first = (first + 1) % items.size();
  --count;
  return copy;
}

MessageStaging::MessageStaging(const device::Gpu& gpu, int ranks,
                               std::shared_ptr<operation::Waker> waker)
    : OnPort(gpu, {.bytes = 2 * MessageSlots::bytes(), .queues = 2}, false, std::move(waker)),
      sends_(port_.memory()),
      receives_(port_.memory() + MessageSlots::bytes()),
      shares_(static_cast<std::size_t>(ranks)),
      loads_{port_.queue(0)},
      stores_{port_.queue(1)} {}

void MessageStaging::load(Request& request, std::size_t offset, std::size_t bytes) {
  if (request.load_end > offset) return;
  const bool small = MessageSlots::is_small(bytes);
  std::uint8_t& share = shares_[static_cast<std::size_t>(request.peer)].of(small);
  if (share == (small ? most_small : most_large)) return;
  Slot* const slot = sends_.take(bytes);
  if (slot == nullptr) return;
  ++share;
  base::TimePoint& copied = request.operation->times.copied;
  if (copied == base::TimePoint{}) copied = base::Clock::now();
  const device::Current current(port_.gpu());
  loads_.queue.to_host(slot->memory, address_of(request.data + offset), bytes);
  loads_.queue.end_batch();
  loads_.push({&request, slot});
  request.slots.push(*slot);
  request.load_end = offset + bytes;
}

void MessageStaging::load_ahead(Request& request, std::size_t offset, std::size_t bytes) {
  if (bytes != 0 && request.load_end == offset && sends_.mostly_free(bytes))
    load(request, offset, bytes);
}

void MessageStaging::sent(Request& request, Slot& slot) noexcept {
  request.slots.take([&](const Slot& s) { return &s == &slot; });
  --shares_[static_cast<std::size_t>(request.peer)].of(slot.small);
  sends_.give(slot);
}

void MessageStaging::store(Request& request, Slot& slot, std::size_t offset, std::size_t bytes) {
  const device::Current current(port_.gpu());
  stores_.queue.to_device(address_of(request.data + offset), slot.memory, bytes);
  stores_.queue.end_batch();
  stores_.push({&request, &slot});
  ++request.copies;
}

bool MessageStaging::copy(const Request& from, Request& to) {
  if (copies_ == most_copies) return false;
  const device::Current current(port_.gpu());
  stores_.queue.on_device(address_of(to.data), address_of(from.data), from.bytes);
  stores_.queue.end_batch();
  stores_.push({&to, nullptr});
  ++to.copies;
  ++copies_;
  return true;
}

bool MessageStaging::advance_loads() {
  if (loads_.count == 0) return false;
  const device::Current current(port_.gpu());
  bool moved = false;
  while (loads_.count != 0 && loads_.queue.take_ended()) {
    loads_.pop().slot->loaded = true;
    moved = true;
  }
  return moved;
}

Request* MessageStaging::take_stored() {
  if (stores_.count == 0) return nullptr;
  const device::Current current(port_.gpu());
  if (!stores_.queue.take_ended()) return nullptr;
  const Copy copy = stores_.pop();
  if (copy.slot != nullptr)
    receives_.give(*copy.slot);
  else
    --copies_;
  --copy.request->copies;
  copy.request->operation->times.stored = base::Clock::now();
  return copy.request;
}

void MessageStaging::forget_all() noexcept {
  OnPort::forget_all();
  loads_.count = stores_.count = copies_ = 0;
  sends_.clear();
  receives_.clear();
  std::ranges::fill(shares_, Share{});
}

}  // namespace rondo::gpu

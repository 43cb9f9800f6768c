// SPDX-License-Identifier: Apache-2.0
//
// Messages whose memory at this rank is on a GPU. A piece is loaded into a slot before it is sent.
// It is received into a slot, and its receive ends when the GPU has stored it.
#include <algorithm>

#include "base/copy.h"
#include "collectives/point/point.h"

namespace rondo::point {

void Point::know(GpuTransfers& gpu) {
  if (std::ranges::find(gpus_, &gpu) == gpus_.end()) gpus_.push_back(&gpu);
}

bool Point::prepare_sleep() {
  return std::ranges::all_of(gpus_, [](GpuTransfers* gpu) { return gpu->prepare_sleep(); });
}

bool Point::await_copies(base::TimePoint until) noexcept {
  bool ended = true;
  for (GpuTransfers* gpu : gpus_) ended = gpu->port().await_copies(until) && ended;
  return ended;
}

bool Point::advance_gpus() {
  bool moved = false;
  for (GpuTransfers* gpu : gpus_) {
    moved = gpu->advance_loads() || moved;
    while (Parcel* const parcel = gpu->take_stored()) {
      stored(*parcel);
      moved = true;
    }
  }
  moved = deliver_waiting() || moved;
  return copy_waiting() || moved;
}

// Sending.

// True when this piece of the parcel is in host memory.
bool Point::load(Parcel& parcel, std::size_t offset, std::size_t bytes) {
  if (parcel.gpu == nullptr) return true;
  parcel.gpu->load(parcel, offset, bytes);
  const std::size_t end = offset + bytes;
  parcel.gpu->load_ahead(parcel, end, std::min(point_piece_bytes, parcel.bytes - end));
  return GpuTransfers::loaded(parcel) != nullptr;
}

// Where the piece is; requires load(). Sets the slot, if it is in one.
const std::byte* Point::bytes_at(const Parcel& parcel, std::size_t offset, GpuSlot*& slot) {
  if (parcel.gpu == nullptr) return parcel.data + offset;
  slot = GpuTransfers::loaded(parcel);
  return slot->memory;
}

// The first message waits for its load: those behind it are loaded meanwhile, if there is credit
// for them.
void Point::load_waiting(const PointPeer& peer) {
  std::uint64_t cost = peer.cost_sent;
  for (Parcel* p = peer.waiting.first(); p != nullptr; p = p->next) {
    cost += message_cost + p->bytes;
    if (cost - peer.cost_returned > point_credit || p->bytes > transports::eager_bytes) return;
    if (p->gpu != nullptr) p->gpu->load_ahead(*p, 0, p->bytes);
  }
}

// Receiving.

// The receive that the frame of the peer belongs to; null where there is none yet.
Parcel* Point::receive_of_frame(PointPeer& peer) noexcept {
  const PointFrame& frame = peer.frame;
  if (frame.kind == PointKind::message) return find_receive(peer, frame.key);
  if (frame.kind != PointKind::piece) return nullptr;
  return peer.granted.find([&](const Parcel& p) { return p.message == frame.message; });
}

// Whether the frame cannot be taken now: its receive is on a GPU, and no slot is free.
bool Point::waits_for_slot(PointPeer& peer) noexcept {
  if (gpus_.empty()) return false;
  const Parcel* const receive = receive_of_frame(peer);
  return receive != nullptr && receive->gpu != nullptr &&
         !receive->gpu->has_room(std::min(point_piece_bytes, receive->bytes - receive->offset));
}

// Where the next bytes of the receive go. On a GPU, a slot must be free.
transports::Receive Point::place_for(PointPeer& peer, Parcel& parcel, std::size_t bytes) noexcept {
  if (parcel.gpu != nullptr) peer.slot = parcel.gpu->take_room(bytes);
  if (bytes == 0) return {};
  return {peer.slot != nullptr ? peer.slot->memory : parcel.data + parcel.offset, bytes};
}

// Everything has come.
void Point::received_all(PointPeer& peer, Parcel& parcel) {
  parcel.handed = true;
  if (parcel.copies == 0) return end(parcel);
  peer.storing.push(parcel);
}

// One of the copies to the receive's memory has ended.
void Point::stored(Parcel& parcel) {
  moved(parcel);
  if (!parcel.handed || parcel.copies != 0) return;
  peer(parcel.peer).storing.take([&](const Parcel& p) { return &p == &parcel; });
  if (parcel.twin != nullptr) end(*parcel.twin);
  end(parcel);
}

// The message came before its receive, and whole.
void Point::deliver(PointPeer& peer, Parcel& parcel, Arrival& arrival) {
  ++parcel.copies;
  arrival.receiver = &parcel;
  received_all(peer, parcel);
  waiting_for_slot_.push(arrival);
  deliver_waiting();
}

bool Point::deliver_waiting() {
  bool moved = false;
  const auto has_room = [](const Arrival& arrival) {
    return arrival.receiver->gpu->has_room(arrival.receiver->bytes);
  };
  while (Arrival* const arrival = waiting_for_slot_.take(has_room)) {
    Parcel& parcel = *arrival->receiver;
    GpuSlot& slot = *parcel.gpu->take_room(parcel.bytes);
    base::copy_bytes(slot.memory, bytes_of(*arrival), parcel.bytes);
    parcel.gpu->store(parcel, slot, 0, parcel.bytes);
    --parcel.copies;
    consumed(peer(arrival->peer), parcel.bytes);
    drop(*arrival);
    moved = true;
  }
  return moved;
}

// Messages to this rank itself.

void Point::copy_to_self(PointPeer& peer, Parcel& from, Parcel& to) {
  from.twin = &to;
  to.twin = &from;
  ++to.copies;
  received_all(peer, to);
  copying_.push(from);
  copy_waiting();
}

bool Point::copy_waiting() {
  bool moved = false;
  for (Parcel *from = copying_.first(), *next = nullptr; from != nullptr; from = next) {
    next = from->next;
    const std::size_t before = from->offset;
    const bool all = copy_some(*from);
    moved = moved || all || from->offset != before;
    if (!all) continue;
    copying_.take([&](const Parcel& p) { return &p == from; });
    Parcel& to = *from->twin;
    --to.copies;
    stored(to);
  }
  return moved;
}

// True when all copies have been made or are under way.
bool Point::copy_some(Parcel& from) {
  Parcel& to = *from.twin;
  if (from.gpu != nullptr && from.gpu == to.gpu) {
    if (!from.gpu->can_copy()) return false;
    from.gpu->copy(from, to);
    return true;
  }
  while (from.offset < from.bytes) {
    const std::size_t bytes = std::min(point_piece_bytes, from.bytes - from.offset);
    if (to.gpu != nullptr && !to.gpu->has_room(bytes)) return false;
    if (!load(from, from.offset, bytes)) return false;
    GpuSlot *source = nullptr, *target = nullptr;
    const std::byte* const piece = bytes_at(from, from.offset, source);
    if (to.gpu != nullptr) target = to.gpu->take_room(bytes);
    base::copy_bytes(target != nullptr ? target->memory : to.data + from.offset, piece, bytes);
    if (source != nullptr) from.gpu->sent(from, *source);
    if (target != nullptr) to.gpu->store(to, *target, from.offset, bytes);
    from.offset += bytes;
  }
  return true;
}

}  // namespace rondo::point

// SPDX-License-Identifier: Apache-2.0
//
// Messages whose buffer on this rank is in device memory. The sender loads a piece into a slot and
// sends it from there. The receiver takes a piece into a slot; the receive ends when the device has
// stored all pieces.
#include <algorithm>

#include "base/copy.h"
#include "collectives/point/point.h"

namespace rondo::point {

void Point::add(Staging& staging) {
  if (std::ranges::find(stagings_, &staging) == stagings_.end()) stagings_.push_back(&staging);
}

bool Point::advance_staged() {
  bool moved = false;
  for (Staging* const staging : stagings_) {
    moved = staging->advance_loads() || moved;
    while (Request* const request = staging->take_stored()) {
      stored(*request);
      moved = true;
    }
  }
  moved = deliver_waiting() || moved;
  return copy_waiting() || moved;
}

// Sending.

// True when this piece of the request is in host memory.
bool Point::load(Request& request, std::size_t offset, std::size_t bytes) {
  if (request.staging == nullptr) return true;
  request.staging->load(request, offset, bytes);
  const std::size_t end = offset + bytes;
  request.staging->load_ahead(request, end, std::min(point_piece_bytes, request.bytes - end));
  return loaded_piece(request) != nullptr;
}

// Where the piece is; requires load(). Sets the slot, if it is in one.
const std::byte* Point::bytes_at(const Request& request, std::size_t offset, Slot*& slot) {
  if (request.staging == nullptr) return request.data + offset;
  slot = loaded_piece(request);
  return slot->memory;
}

// The first message waits for its load: those behind it are loaded meanwhile, if there is credit
// for them.
void Point::load_waiting(const PointPeer& peer) {
  std::uint64_t cost = peer.cost_sent;
  for (Request* p = peer.waiting.first(); p != nullptr; p = p->next) {
    cost += message_cost + p->bytes;
    if (cost - peer.cost_returned > point_credit || p->bytes > transports::eager_bytes) return;
    if (p->staging != nullptr) p->staging->load_ahead(*p, 0, p->bytes);
  }
}

// Receiving.

// The receive that the frame of the peer belongs to; null where there is none yet.
Request* Point::receive_of_frame(PointPeer& peer) noexcept {
  const PointFrame& frame = peer.frame;
  if (frame.kind == PointKind::message) return matching_.find(peer, frame.key);
  if (frame.kind != PointKind::piece) return nullptr;
  return peer.granted.find([&](const Request& p) { return p.message == frame.message; });
}

// Whether the frame cannot be taken now: its receive is staged, and no slot is free.
bool Point::waits_for_slot(PointPeer& peer) noexcept {
  if (stagings_.empty()) return false;
  const Request* const receive = receive_of_frame(peer);
  return receive != nullptr && receive->staging != nullptr &&
         !receive->staging->has_room(std::min(point_piece_bytes, receive->bytes - receive->offset));
}

// Where the next bytes of the receive go. If it is staged, a slot must be free.
transports::Receive Point::place_for(PointPeer& peer, Request& request,
                                     std::size_t bytes) noexcept {
  if (request.staging != nullptr) peer.slot = request.staging->take_room(bytes);
  if (bytes == 0) return {};
  return {peer.slot != nullptr ? peer.slot->memory : request.data + request.offset, bytes};
}

// Everything has come.
void Point::received_all(PointPeer& peer, Request& request) {
  request.handed = true;
  if (request.copies == 0) return end(request);
  peer.storing.push(request);
}

// One of the copies to the receive's memory has ended.
void Point::stored(Request& request) {
  moved(request);
  if (!request.handed || request.copies != 0) return;
  peer(request.peer).storing.take([&](const Request& p) { return &p == &request; });
  if (request.other_end != nullptr) end(*request.other_end);
  end(request);
}

// The message came before its receive, and whole.
void Point::deliver(PointPeer& peer, Request& request, Arrival& arrival) {
  ++request.copies;
  arrival.receiver = &request;
  received_all(peer, request);
  waiting_for_slot_.push(arrival);
  deliver_waiting();
}

bool Point::deliver_waiting() {
  bool moved = false;
  const auto has_room = [](const Arrival& arrival) {
    return arrival.receiver->staging->has_room(arrival.receiver->bytes);
  };
  while (Arrival* const arrival = waiting_for_slot_.take(has_room)) {
    Request& request = *arrival->receiver;
    Slot& slot = *request.staging->take_room(request.bytes);
    base::copy_bytes(slot.memory, bytes_of(*arrival), request.bytes);
    request.staging->store(request, slot, 0, request.bytes);
    --request.copies;
    consumed(*arrival->peer, request.bytes);
    matching_.drop(*arrival);
    moved = true;
  }
  return moved;
}

// Messages to this rank itself.

void Point::copy_to_self(PointPeer& peer, Request& from, Request& to) {
  from.other_end = &to;
  to.other_end = &from;
  ++to.copies;
  received_all(peer, to);
  copying_.push(from);
  copy_waiting();
}

bool Point::copy_waiting() {
  bool moved = false;
  for (Request *from = copying_.first(), *next = nullptr; from != nullptr; from = next) {
    next = from->next;
    const std::size_t before = from->offset;
    const bool all = copy_some(*from);
    moved = moved || all || from->offset != before;
    if (!all) continue;
    copying_.take([&](const Request& p) { return &p == from; });
    Request& to = *from->other_end;
    --to.copies;
    stored(to);
  }
  return moved;
}

// True when all copies have been made or are under way.
bool Point::copy_some(Request& from) {
  Request& to = *from.other_end;
  if (from.staging != nullptr && from.staging == to.staging) return from.staging->copy(from, to);
  while (from.offset < from.bytes) {
    const std::size_t bytes = std::min(point_piece_bytes, from.bytes - from.offset);
    if (to.staging != nullptr && !to.staging->has_room(bytes)) return false;
    if (!load(from, from.offset, bytes)) return false;
    Slot *source = nullptr, *target = nullptr;
    const std::byte* const piece = bytes_at(from, from.offset, source);
    if (to.staging != nullptr) target = to.staging->take_room(bytes);
    base::copy_bytes(target != nullptr ? target->memory : to.data + from.offset, piece, bytes);
    if (source != nullptr) from.staging->sent(from, *source);
    if (target != nullptr) to.staging->store(to, *target, from.offset, bytes);
    from.offset += bytes;
  }
  return true;
}

}  // namespace rondo::point

// SPDX-License-Identifier: Apache-2.0
//
// Handles the frames from a peer. The header says how long a message is. That length is believed
// only as far as the credit, or the receive that asked for the bytes, allows.
#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/crc32c.h"
#include "collectives/point/point.h"

namespace rondo::point {

std::optional<transports::Receive> Point::expected(transports::Link& link, std::size_t ahead) {
  const auto& place = peers_[static_cast<std::size_t>(link.peer())];
  // The next frame is known only when its header has come.
  if (ahead != 0 || !place) return std::nullopt;
  if (place->held && !waits_for_slot(*place)) {
    place->held = false;
    place->taken = place->arriving = accept(*place, place->frame);
  }
  if (!place->arriving) return std::nullopt;
  return place->receive;
}

bool Point::awaits_header(transports::Link& link) {
  const auto& place = peers_[static_cast<std::size_t>(link.peer())];
  if (place && (place->arriving || place->held)) return false;
  return matching_.any_waits() || (place && place->pending > 0);
}

transports::Header Point::arrived(transports::Link& link, const transports::HeaderBytes& header) {
  PointPeer& from = peer(link.peer());
  from.link = &link;
  if (std::exchange(from.taken, false)) return transports::Header::accept;
  if (!decode(header, from.frame)) {
    corrupt(from, "a frame header is damaged");
    return transports::Header::refuse;
  }
  from.receive = {};
  from.arrival = nullptr;
  from.request = nullptr;
  from.slot = nullptr;
  from.held = waits_for_slot(from);
  if (from.held) return transports::Header::hold;
  from.arriving = accept(from, from.frame);
  return from.arriving ? transports::Header::accept : transports::Header::refuse;
}

bool Point::corrupt(const PointPeer& peer, std::string_view what) {
  host_.suspect(losses_.failure(Errc::corrupt, peer.rank, peer.link, what));
  return false;
}

bool Point::accept(PointPeer& peer, const PointFrame& frame) {
  if (frame.returned < peer.cost_returned || frame.returned > peer.cost_sent)
    return corrupt(peer, "it gives back credit that it does not have");
  peer.cost_returned = frame.returned;
  switch (frame.kind) {
    case PointKind::message:
      return accept_message(peer, frame);
    case PointKind::announce:
      return accept_announce(peer, frame);
    case PointKind::grant:
      return accept_grant(peer, frame);
    case PointKind::piece:
      return accept_piece(peer, frame);
    case PointKind::credit:
      return true;
  }
  return false;
}

bool Point::accept_message(PointPeer& peer, const PointFrame& frame) {
  if (frame.message != peer.messages_received + 1)
    return corrupt(peer, "a message came out of order");
  if (frame.count > transports::eager_bytes / size_of(frame.type))
    return corrupt(peer, "a message is too long");
  const std::size_t bytes = frame.count * size_of(frame.type);
  if (peer.cost_received + message_cost + bytes - peer.cost_reported > point_credit)
    return corrupt(peer, "it sends more than it has credit for");
  ++peer.messages_received;
  peer.cost_received += message_cost + bytes;
  const std::size_t follow = bytes > inline_bytes ? bytes : 0;
  peer.request = matching_.take(peer, frame.key);
  if (peer.request != nullptr) {
    if (!agree(peer, *peer.request, frame)) return false;
    peer.receive = place_for(peer, *peer.request, bytes);
    if (follow == 0) peer.receive = {};
    return true;
  }
  Arrival& arrival = matching_.keep(peer, frame);
  if (follow != 0) matching_.give_memory(arrival, follow);
  peer.receive = {follow != 0 ? arrival.block->memory.get() : nullptr, follow};
  peer.arrival = &arrival;
  return true;
}

bool Point::accept_announce(PointPeer& peer, const PointFrame& frame) {
  if (frame.message != peer.messages_received + 1)
    return corrupt(peer, "a message came out of order");
  ++peer.messages_received;
  if (Request* const request = matching_.take(peer, frame.key)) {
    if (!agree(peer, *request, frame)) return false;
    request->message = frame.message;
    peer.matched.push(*request);
    activate(peer);
    return true;
  }
  if (peer.announcements >= most_announced) return corrupt(peer, "it announces too many messages");
  ++peer.announcements;
  matching_.keep(peer, frame).announced = true;
  return true;
}

bool Point::accept_grant(PointPeer& peer, const PointFrame& frame) {
  Request* const request =
      peer.announced.take([&](const Request& p) { return p.message == frame.message; });
  if (request == nullptr) return corrupt(peer, "it asks for a message that was not announced");
  --peer.announced_count;
  peer.flowing.push(*request);
  activate(peer);
  return true;
}

bool Point::accept_piece(PointPeer& peer, const PointFrame& frame) {
  Request* request = peer.granted.first();
  while (request != nullptr && request->message != frame.message) request = request->next;
  if (request == nullptr || frame.offset != request->offset)
    return corrupt(peer, "a piece came that was not asked for");
  const std::size_t bytes = std::min(point_piece_bytes, request->bytes - request->offset);
  peer.receive = place_for(peer, *request, bytes);
  peer.request = request;
  return true;
}

void Point::received(transports::Link& link) {
  PointPeer& from = peer(link.peer());
  if (!from.arriving) return;
  from.arriving = false;
  from.heard = calls_.looked();
  ++traffic_.frames_received;
  traffic_.bytes_received += from.receive.bytes;
  if (!check_content(from)) return;
  try {
    if (from.frame.kind == PointKind::message) received_message(from);
    if (from.frame.kind == PointKind::piece) received_piece(from);
  } catch (const std::exception& error) {  // a device refuses a copy
    host_.suspect(operation::cannot_go_on(options_.rank, error));
  }
}

bool Point::check_content(const PointPeer& peer) {
  if (!options_.checksum || peer.receive.bytes == 0) return true;
  const std::span<const std::byte> content(peer.receive.destination, peer.receive.bytes);
  return base::crc32c(content) == peer.frame.checksum ||
         corrupt(peer, "the checksum of a payload does not match");
}

void Point::received_message(PointPeer& peer) {
  const std::size_t bytes = peer.frame.count * size_of(peer.frame.type);
  if (bytes <= inline_bytes) traffic_.bytes_received += bytes;
  if (Request* const request = peer.request) {
    std::byte* const to = peer.slot != nullptr ? peer.slot->memory : request->data;
    if (bytes != 0 && bytes <= inline_bytes) std::memcpy(to, peer.frame.content.data(), bytes);
    if (peer.slot != nullptr) request->staging->store(*request, *peer.slot, 0, bytes);
    consumed(peer, bytes);
    return received_all(peer, *request);
  }
  Arrival& arrival = *peer.arrival;
  arrival.complete = true;
  if (arrival.receiver != nullptr) take(peer, *arrival.receiver, arrival);
}

void Point::received_piece(PointPeer& peer) {
  Request& request = *peer.request;
  if (peer.slot != nullptr)
    request.staging->store(request, *peer.slot, request.offset, peer.receive.bytes);
  request.offset += peer.receive.bytes;
  request.operation->times.arrived = calls_.looked();
  if (request.offset < request.bytes) return moved(request);
  peer.granted.take([&](const Request& p) { return &p == &request; });
  --peer.granted_count;
  if (!peer.matched.empty()) activate(peer);
  received_all(peer, request);
}

}  // namespace rondo::point

// SPDX-License-Identifier: Apache-2.0
//
// Sends frames to a peer, in this order:
//   1. grants
//   2. messages and announcements in the order of their calls, in turn with pieces of granted
//      messages
//   3. credit, if no other frame has carried it
#include <algorithm>
#include <utility>

#include "base/crc32c.h"
#include "collectives/point/point.h"

namespace rondo::point {

namespace {

constexpr int frames_in_a_row = 64;  // to one peer, before another gets its turn

bool credit_is_due(const PointPeer& peer) noexcept {
  return !peer.left && peer.cost_consumed - peer.cost_reported >= point_credit / 4;
}

bool has_more(const PointPeer& peer) noexcept {
  return !peer.matched.empty() || !peer.waiting.empty() || !peer.flowing.empty() ||
         credit_is_due(peer);
}

std::size_t next_piece(const Request& request) noexcept {
  return std::min(point_piece_bytes, request.bytes - request.offset);
}

// A small message travels in its frame. Returns what follows the frame.
std::span<const std::byte> pack(PointFrame& frame, std::span<const std::byte> message) noexcept {
  if (message.size() > inline_bytes) return message;
  std::copy(message.begin(), message.end(), frame.content.begin());
  return {};
}

std::uint64_t cost_of(std::size_t bytes) noexcept {
  return message_cost + bytes;
}

// Whether such a message may go without a grant.
bool goes_whole(const PointPeer& peer, std::size_t bytes) noexcept {
  return bytes <= transports::eager_bytes &&
         peer.cost_sent + cost_of(bytes) - peer.cost_returned <= point_credit;
}

PointFrame frame_of(const Request& request, PointKind kind) noexcept {
  PointFrame frame;
  frame.kind = kind;
  frame.type = request.type;
  frame.key = request.key;
  frame.call = static_cast<std::uint32_t>(request.operation->number);
  frame.message = request.message;
  frame.count = request.count;
  return frame;
}

}  // namespace

bool Point::send_to_active() {
  bool moved = false;
  for (std::size_t i = 0; i < active_.size();) {
    PointPeer& peer = *active_[i];
    moved |= send_ready(peer);
    if (has_more(peer)) {
      ++i;
    } else {
      peer.active = false;
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return moved;
}

bool Point::send_ready(PointPeer& peer) {
  int sent = 0;
  while (sent < frames_in_a_row && !peer.lost && send_next(peer)) ++sent;
  return sent > 0;
}

bool Point::send_next(PointPeer& peer) {
  if (send_grant(peer)) return true;
  peer.piece_next = !peer.piece_next;
  if (peer.piece_next ? send_piece(peer) || send_message(peer)
                      : send_message(peer) || send_piece(peer))
    return true;
  return credit_is_due(peer) && send_credit(peer);
}

transports::Send Point::give(PointPeer& peer, PointFrame& frame,
                             std::span<const std::byte> payload) {
  frame.returned = peer.cost_consumed;
  const transports::Send result = peer.link->send(encode(frame), payload);
  if (result == transports::Send::full) return result;
  peer.cost_reported = peer.cost_consumed;
  ++traffic_.frames_sent;
  traffic_.bytes_sent += payload.size();
  return result;
}

// False when the link has no room. request: may end only when the link has sent the frame; null for
// grants and credit, which have no payload.
// slot: where the payload is, if its message is staged.
bool Point::hand_over(PointPeer& peer, PointFrame& frame, Request* request,
                      std::span<const std::byte> payload, Slot* slot) {
  if (peer.link == nullptr) peer.link = &host_.link(peer.rank, transports::Lane::messages);
  if (options_.checksum && request != nullptr && !payload.empty()) {
    if (!request->checksum) request->checksum = base::crc32c(payload);
    frame.checksum = *request->checksum;
  }
  const transports::Send result = give(peer, frame, payload);
  if (result == transports::Send::full) return false;
  if (request != nullptr) {
    moved(*request);
    base::TimePoint& first = request->operation->times.sent;
    if (first == base::TimePoint{} && frame.kind != PointKind::announce) first = calls_.looked();
    request->checksum.reset();
  }
  if (slot != nullptr && result != transports::Send::queued)
    request->staging->sent(*request, *std::exchange(slot, nullptr));
  if (result == transports::Send::done) return true;
  peer.flying.push_back({request, slot});
  if (slot != nullptr) slot->lent = true;
  if (request != nullptr) ++request->flying;
  return true;
}

bool Point::send_grant(PointPeer& peer) {
  Request* const request = peer.matched.first();
  if (request == nullptr || peer.granted_count >= most_granted) return false;
  PointFrame frame = frame_of(*request, PointKind::grant);
  if (!hand_over(peer, frame, nullptr, {})) return false;
  peer.granted.push(*peer.matched.pop());
  ++peer.granted_count;
  return true;
}

bool Point::send_message(PointPeer& peer) {
  Request* const request = peer.waiting.first();
  if (request == nullptr) return false;
  const bool whole = goes_whole(peer, request->bytes);
  if (!whole && peer.announced_count >= most_announced) return false;
  if (whole && !load(*request, 0, request->bytes)) {
    load_waiting(peer);
    return false;
  }
  request->message = peer.messages_sent + 1;
  PointFrame frame = frame_of(*request, whole ? PointKind::message : PointKind::announce);
  Slot* slot = nullptr;
  std::span<const std::byte> payload;
  if (whole) payload = pack(frame, {bytes_at(*request, 0, slot), request->bytes});
  if (!hand_over(peer, frame, request, payload, payload.empty() ? nullptr : slot)) return false;
  if (slot != nullptr && payload.empty()) request->staging->sent(*request, *slot);
  peer.waiting.pop();
  if (whole) {
    count_whole(peer, request->bytes, payload);
    finish_sending(*request);
  } else {
    ++peer.messages_sent;
    peer.announced.push(*request);
    ++peer.announced_count;
  }
  return true;
}

// payload: what followed the frame of the message.
void Point::count_whole(PointPeer& peer, std::size_t bytes,
                        std::span<const std::byte> payload) noexcept {
  ++peer.messages_sent;
  peer.cost_sent += cost_of(bytes);
  traffic_.bytes_sent += bytes - payload.size();
}

transports::Send Point::send_at_once(const PointTransfer& transfer, std::uint64_t number) {
  PointPeer* const peer = peers_[static_cast<std::size_t>(transfer.peer)].get();
  const std::size_t bytes = transfer.count * size_of(transfer.type);
  if (peer == nullptr || peer->link == nullptr || peer->active || peer->lost || peer->left ||
      !goes_whole(*peer, bytes))
    return transports::Send::full;
  peer->flying.reserve(peer->flying.size() + 1);
  PointFrame frame;
  frame.kind = PointKind::message;
  frame.type = transfer.type;
  frame.key = transfer.key;
  frame.call = static_cast<std::uint32_t>(number);
  frame.message = peer->messages_sent + 1;
  frame.count = transfer.count;
  const std::span<const std::byte> payload = pack(frame, {transfer.data, bytes});
  if (options_.checksum && !payload.empty()) frame.checksum = base::crc32c(payload);
  const transports::Send result = give(*peer, frame, payload);
  if (result == transports::Send::full) return result;
  count_whole(*peer, bytes, payload);
  if (result != transports::Send::done) peer->flying.push_back({});
  return result;
}

void Point::await_sent(MessageOperation& operation, const PointTransfer& transfer) {
  PointPeer& its_peer = peer(transfer.peer);
  Request& request = take_request(operation, transfer);
  request.message = its_peer.messages_sent;
  request.handed = true;
  request.flying = 1;
  ++its_peer.pending;
  its_peer.flying.back().request = &request;
  operation.times.sent = calls_.looked();
  moved(request);
}

// Belongs to the first request whose next piece is in host memory.
bool Point::send_piece(PointPeer& peer) {
  Request* request = peer.flowing.first();
  while (request != nullptr && !load(*request, request->offset, next_piece(*request)))
    request = request->next;
  if (request == nullptr) return false;
  PointFrame frame = frame_of(*request, PointKind::piece);
  frame.offset = request->offset;
  const std::size_t bytes = next_piece(*request);
  Slot* slot = nullptr;
  const std::byte* const payload = bytes_at(*request, request->offset, slot);
  if (!hand_over(peer, frame, request, {payload, bytes}, slot)) return false;
  peer.flowing.take([&](const Request& p) { return &p == request; });
  request->offset += bytes;
  if (request->offset < request->bytes)
    peer.flowing.push(*request);
  else
    finish_sending(*request);
  return true;
}

// The link has taken all of the request. It ends when the link has sent that.
void Point::finish_sending(Request& request) {
  request.handed = true;
  if (request.flying == 0) end(request);
}

bool Point::send_credit(PointPeer& peer) {
  PointFrame frame;
  return hand_over(peer, frame, nullptr, {});
}

void Point::sent(transports::Link& link) {
  PointPeer& its_peer = peer(link.peer());
  if (its_peer.flying.empty()) return;
  const auto [request, slot] = its_peer.flying.front();
  its_peer.flying.erase(its_peer.flying.begin());
  if (request == nullptr) return;
  if (slot != nullptr) request->staging->sent(*request, *slot);
  --request->flying;
  if (request->handed && request->flying == 0) end(*request);
}

}  // namespace rondo::point

// SPDX-License-Identifier: Apache-2.0
//
// Starts transfers and finds the message for a receive. send.cc and receive.cc handle frames.
#include "collectives/point/point.h"

#include <algorithm>

#include "base/copy.h"

namespace rondo::point {

namespace {

PointFrame frame_of(const Request& request) noexcept {
  PointFrame frame;
  frame.type = request.type;
  frame.key = request.key;
  frame.count = request.count;
  frame.call = static_cast<std::uint32_t>(request.operation->number);
  return frame;
}

}  // namespace

Point::Point(const Options& options, operation::LaneCalls& calls, operation::OwnerHost& host)
    : options_(options),
      calls_(calls),
      host_(host),
      peers_(static_cast<std::size_t>(options.size)),
      losses_(options.rank, options.size) {}

PointPeer& Point::make_peer(int rank) {
  auto& place = peers_[static_cast<std::size_t>(rank)];
  place = std::make_unique<PointPeer>();
  place->rank = rank;
  place->flying.reserve(16);
  active_.reserve(peers_.size());
  return *place;
}

void Point::reserve(std::span<const PointTransfer> transfers) {
  requests_.reserve(transfers.size());
  for (const PointTransfer& transfer : transfers)
    if (transfer.peer != any_rank) peer(transfer.peer);
}

void Point::activate(PointPeer& peer) {
  if (peer.active) return;
  peer.active = true;
  active_.push_back(&peer);
}

Request& Point::take_request(MessageOperation& operation, const PointTransfer& t) {
  Request& request = requests_.take();
  request.operation = &operation;
  request.peer = t.peer;
  request.sending = t.sending;
  request.key = t.key;
  request.type = t.type;
  request.count = t.count;
  request.data = t.data;
  request.bytes = t.count * size_of(t.type);
  if (request.bytes != 0) request.staging = static_cast<Staging*>(operation.memory);
  return request;
}

// Starts receives first, so that a message to this rank itself finds them.
void Point::begin(MessageOperation& operation, std::span<const PointTransfer> transfers) {
  for (const bool sending : {false, true})
    for (const PointTransfer& t : transfers) {
      if (t.sending != sending) continue;
      Request& request = take_request(operation, t);
      if (t.peer == any_rank)
        post_any(request);
      else
        begin(peer(t.peer), request);
      if (operation.state() != operation::Operation::State::running)
        return;  // failed, or all is done
    }
}

void Point::begin(PointPeer& peer, Request& request) {
  ++peer.pending;
  if (!request.sending) {
    if (Arrival* const arrival = matching_.post(peer, request)) take(peer, request, *arrival);
  } else if (peer.rank == options_.rank) {
    send_to_self(peer, request);
  } else {
    peer.waiting.push(request);
    activate(peer);
  }
  if (peer.left || peer.lost) check_peer(peer, base::Clock::now());
}

bool Point::look_for(const operation::Operation& operation) {
  const int rank = static_cast<const MessageOperation&>(operation).only_peer();
  if (rank == any_rank) return false;
  transports::Link* const link = peers_[static_cast<std::size_t>(rank)]->link;
  if (link == nullptr || !link->look()) return false;
  if (!active_.empty()) send_to_active();
  return true;
}

// Only the oldest call counts. The others do not wait for it, so what they move would hide that it
// stands still.
void Point::moved(const Request& request) noexcept {
  if (request.operation == calls_.first()) calls_.moved();
}

void Point::end(Request& request) {
  MessageOperation& operation = *request.operation;
  moved(request);
  --peer(request.peer).pending;
  if (!request.sending) {
    operation.received_from(request.peer);
    operation.times.arrived = calls_.looked();
  }
  requests_.give(request);
  if (--operation.transfers_left == 0) host_.finished(operation);
}

void Point::post_any(Request& request) {
  Arrival* const arrival = matching_.post_any(request);
  if (arrival == nullptr) return check_any(base::Clock::now());
  PointPeer& from = *arrival->peer;
  take(from, request, *arrival);
  if (from.lost) check_peer(from, base::Clock::now());
}

void Point::take(PointPeer& peer, Request& request, Arrival& arrival) {
  if (!agree(peer, request, arrival.frame)) return;
  if (!arrival.announced && !arrival.complete) {
    arrival.receiver = &request;  // received_message() goes on when the bytes are here
    return;
  }
  if (!arrival.announced && request.staging != nullptr) return deliver(peer, request, arrival);
  if (!arrival.announced) {
    base::copy_bytes(request.data, bytes_of(arrival), request.bytes);
    consumed(peer, request.bytes);
  } else if (arrival.sender != nullptr) {
    --peer.announcements;
    Request& sender = *arrival.sender;
    if (sender.staging != nullptr || request.staging != nullptr) {
      matching_.drop(arrival);
      return copy_to_self(peer, sender, request);
    }
    base::copy_bytes(request.data, sender.data, request.bytes);
    end(sender);
  } else {
    --peer.announcements;
    request.message = arrival.frame.message;
    matching_.drop(arrival);
    peer.matched.push(request);
    return activate(peer);
  }
  matching_.drop(arrival);
  end(request);
}

void Point::consumed(PointPeer& peer, std::uint64_t bytes) {
  peer.cost_consumed += message_cost + bytes;
  if (peer.rank == options_.rank) {
    peer.cost_returned = peer.cost_consumed;
  } else if (peer.cost_consumed - peer.cost_reported >= point_credit / 4) {
    activate(peer);
  }
}

void Point::send_to_self(PointPeer& peer, Request& request) {
  const PointFrame frame = frame_of(request);
  if (Request* const receiver = matching_.take(peer, request.key)) {
    if (!agree(peer, *receiver, frame)) return;
    if (request.staging != nullptr || receiver->staging != nullptr)
      return copy_to_self(peer, request, *receiver);
    base::copy_bytes(receiver->data, request.data, request.bytes);
    end(*receiver);
    return end(request);
  }
  Arrival& arrival = matching_.keep(peer, frame);
  const std::uint64_t cost = message_cost + request.bytes;
  if (request.bytes > transports::eager_bytes || request.staging != nullptr ||
      peer.cost_sent + cost - peer.cost_returned > point_credit) {
    arrival.announced = true;
    arrival.sender = &request;
    ++peer.announcements;
    return;
  }
  peer.cost_sent += cost;
  if (request.bytes > inline_bytes) matching_.give_memory(arrival, request.bytes);
  std::byte* const to =
      arrival.block != nullptr ? arrival.block->memory.get() : arrival.frame.content.data();
  base::copy_bytes(to, request.data, request.bytes);
  arrival.complete = true;
  end(request);
}

void Point::clear() noexcept {
  losses_.begin_check();
  active_.clear();
  matching_.clear();
  waiting_for_slot_ = {};
  copying_ = {};
  for (const auto& p : peers_) {
    if (!p) continue;
    p->pending = 0;
    p->active = p->arriving = p->held = p->taken = false;
    p->waiting = p->announced = p->flowing = p->matched = p->granted = p->storing = {};
    p->arrivals = {};
    p->posted = {};
    p->flying.clear();
  }
}

}  // namespace rondo::point

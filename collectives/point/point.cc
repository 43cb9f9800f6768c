// SPDX-License-Identifier: Apache-2.0
//
// Starts transfers and finds the message for a receive. send.cc and receive.cc handle frames.
#include "collectives/point/point.h"

#include <algorithm>

#include "base/copy.h"

namespace rondo::point {

namespace {

PointFrame frame_of(const Parcel& parcel) noexcept {
  PointFrame frame;
  frame.type = parcel.type;
  frame.key = parcel.key;
  frame.count = parcel.count;
  frame.call = static_cast<std::uint32_t>(parcel.operation->number);
  return frame;
}

}  // namespace

Point::Point(const Options& options, operation::LaneCalls& calls, operation::OwnerHost& host)
    : options_(options),
      calls_(calls),
      host_(host),
      peers_(static_cast<std::size_t>(options.size)),
      losses_(options.rank, options.size) {}

PointPeer& Point::peer(int rank) {
  auto& place = peers_[static_cast<std::size_t>(rank)];
  if (!place) {
    place = std::make_unique<PointPeer>();
    place->rank = rank;
    place->flying.reserve(16);
    active_.reserve(peers_.size());
  }
  return *place;
}

void Point::reserve(std::span<const PointTransfer> transfers) {
  parcels_.reserve(transfers.size());
  for (const PointTransfer& transfer : transfers)
    if (transfer.peer != any_rank) peer(transfer.peer);
}

void Point::activate(PointPeer& peer) {
  if (peer.active) return;
  peer.active = true;
  active_.push_back(&peer);
}

// Starts receives first, so that a message to this rank itself finds them.
void Point::begin(MessageOperation& operation, std::span<const PointTransfer> transfers) {
  const base::TimePoint now = base::Clock::now();
  for (const bool sending : {false, true})
    for (const PointTransfer& t : transfers) {
      if (t.sending != sending) continue;
      Parcel& parcel = parcels_.take();
      parcel.operation = &operation;
      parcel.peer = t.peer;
      parcel.sending = sending;
      parcel.key = t.key;
      parcel.type = t.type;
      parcel.count = t.count;
      parcel.data = t.data;
      parcel.bytes = t.count * size_of(t.type);
      if (parcel.bytes != 0) parcel.gpu = operation.on_gpu.transfers;
      if (t.peer == any_rank)
        post_any(parcel, now);
      else
        begin(peer(t.peer), parcel, now);
      if (operation.state() != operation::Operation::State::running)
        return;  // failed, or all is done
    }
}

void Point::begin(PointPeer& peer, Parcel& parcel, base::TimePoint now) {
  ++peer.pending;
  if (!parcel.sending) {
    post(peer, parcel);
  } else if (peer.rank == options_.rank) {
    send_to_self(peer, parcel);
  } else {
    peer.waiting.push(parcel);
    activate(peer);
  }
  if (peer.left || peer.lost) check_peer(peer, now);
}

// Only the oldest call counts. The others do not wait for it, so what they move would hide that it
// stands still.
void Point::moved(const Parcel& parcel) noexcept {
  if (parcel.operation == calls_.first()) calls_.moved();
}

void Point::end(Parcel& parcel) {
  MessageOperation& operation = *parcel.operation;
  moved(parcel);
  --peer(parcel.peer).pending;
  if (!parcel.sending) operation.received_from(parcel.peer);
  parcels_.give(parcel);
  if (--operation.transfers_left == 0) host_.finished(operation);
}

void Point::post(PointPeer& peer, Parcel& parcel) {
  const std::size_t bucket = bucket_of(parcel.key);
  Arrival* const arrival =
      peer.arrivals[bucket].take([&](const Arrival& a) { return a.frame.key == parcel.key; });
  if (arrival == nullptr) {
    parcel.turn = ++turns_;
    peer.posted[bucket].push(parcel);
  } else {
    any_[bucket].early.remove(*arrival);
    take(peer, parcel, *arrival);
  }
}

// Keeps a message, or its announcement, for the receive that will take it.
Arrival& Point::keep(PointPeer& peer, const PointFrame& frame) {
  const std::size_t bucket = bucket_of(frame.key);
  Arrival& arrival = arrivals_.take();
  arrival.peer = peer.rank;
  arrival.frame = frame;
  peer.arrivals[bucket].push(arrival);
  any_[bucket].early.add(arrival);
  return arrival;
}

void Point::take(PointPeer& peer, Parcel& parcel, Arrival& arrival) {
  if (!agree(peer, parcel, arrival.frame)) return;
  if (!arrival.announced && !arrival.complete) {
    arrival.receiver = &parcel;  // received_message() goes on when the bytes are here
    return;
  }
  if (!arrival.announced && parcel.gpu != nullptr) return deliver(peer, parcel, arrival);
  if (!arrival.announced) {
    base::copy_bytes(parcel.data, bytes_of(arrival), parcel.bytes);
    consumed(peer, parcel.bytes);
  } else if (arrival.sender != nullptr) {
    --peer.announcements;
    Parcel& sender = *arrival.sender;
    if (sender.gpu != nullptr || parcel.gpu != nullptr) {
      drop(arrival);
      return copy_to_self(peer, sender, parcel);
    }
    base::copy_bytes(parcel.data, sender.data, parcel.bytes);
    end(sender);
  } else {
    --peer.announcements;
    parcel.message = arrival.frame.message;
    drop(arrival);
    peer.matched.push(parcel);
    return activate(peer);
  }
  drop(arrival);
  end(parcel);
}

void Point::drop(Arrival& arrival) noexcept {
  if (arrival.block != nullptr) blocks_.give(*arrival.block);
  arrivals_.give(arrival);
}

void Point::consumed(PointPeer& peer, std::uint64_t bytes) {
  peer.cost_consumed += message_cost + bytes;
  if (peer.rank == options_.rank) {
    peer.cost_returned = peer.cost_consumed;
  } else if (peer.cost_consumed - peer.cost_reported >= point_credit / 4) {
    activate(peer);
  }
}

void Point::send_to_self(PointPeer& peer, Parcel& parcel) {
  const PointFrame frame = frame_of(parcel);
  if (Parcel* const receiver = take_receive(peer, parcel.key)) {
    if (!agree(peer, *receiver, frame)) return;
    if (parcel.gpu != nullptr || receiver->gpu != nullptr)
      return copy_to_self(peer, parcel, *receiver);
    base::copy_bytes(receiver->data, parcel.data, parcel.bytes);
    end(*receiver);
    return end(parcel);
  }
  Arrival& arrival = keep(peer, frame);
  const std::uint64_t cost = message_cost + parcel.bytes;
  if (parcel.bytes > transports::eager_bytes || parcel.gpu != nullptr ||
      peer.cost_sent + cost - peer.cost_returned > point_credit) {
    arrival.announced = true;
    arrival.sender = &parcel;
    ++peer.announcements;
    return;
  }
  peer.cost_sent += cost;
  if (parcel.bytes > inline_bytes) arrival.block = blocks_.take(parcel.bytes);
  std::byte* const to =
      arrival.block != nullptr ? arrival.block->memory.get() : arrival.frame.content.data();
  base::copy_bytes(to, parcel.data, parcel.bytes);
  arrival.complete = true;
  end(parcel);
}

void Point::clear() noexcept {
  losses_.begin_check();
  active_.clear();
  any_ = {};
  any_posted_ = 0;
  waiting_for_slot_ = {};
  copying_ = {};
  for (GpuTransfers* gpu : gpus_) gpu->clear();
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

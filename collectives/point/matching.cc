// SPDX-License-Identifier: Apache-2.0
#include "collectives/point/matching.h"

#include "collectives/point/message_operation.h"

namespace rondo::point {

Arrival* Matching::post(PointPeer& peer, Request& request) noexcept {
  const std::size_t bucket = bucket_of(request.key);
  Arrival* const arrival =
      peer.arrivals[bucket].take([&](const Arrival& a) { return a.frame.key == request.key; });
  if (arrival != nullptr) {
    any_[bucket].early.remove(*arrival);
  } else {
    request.turn = ++turns_;
    peer.posted[bucket].push(request);
  }
  return arrival;
}

Arrival* Matching::post_any(Request& request) noexcept {
  AnyBucket& bucket = any_[bucket_of(request.key)];
  request.from_any = true;
  Arrival* const arrival = bucket.early.oldest(request.key);
  if (arrival != nullptr) {
    arrival->peer->arrivals[bucket_of(request.key)].remove(*arrival);
    bucket.early.remove(*arrival);
    found(*arrival->peer, request);
  } else {
    request.turn = ++turns_;
    bucket.posted.push(request);
    ++any_waiting_;
  }
  return arrival;
}

// From now on the receive is one from this peer.
void Matching::found(PointPeer& peer, Request& request) noexcept {
  request.peer = peer.rank;
  ++peer.pending;
}

Request* Matching::find(PointPeer& peer, const PointKey& key) const noexcept {
  const auto waits = [&](const Request& request) { return request.key == key; };
  Request* const one = peer.posted[bucket_of(key)].find(waits);
  if (!any_waits()) return one;
  Request* const other = any_[bucket_of(key)].posted.find(waits);
  return other == nullptr || (one != nullptr && one->turn < other->turn) ? one : other;
}

Request* Matching::take(PointPeer& peer, const PointKey& key) noexcept {
  base::Fifo<Request>& named = peer.posted[bucket_of(key)];
  const auto waits = [&](const Request& request) { return request.key == key; };
  if (!any_waits()) return named.take(waits);
  base::Fifo<Request>& any = any_[bucket_of(key)].posted;
  const Request *const one = named.find(waits), *const other = any.find(waits);
  if (other == nullptr || (one != nullptr && one->turn < other->turn)) return named.take(waits);
  Request* const request = any.take(waits);
  --any_waiting_;
  found(peer, *request);
  return request;
}

const Request* Matching::any_of(const operation::Operation& operation) const noexcept {
  for (const AnyBucket& bucket : any_)
    if (const Request* const request = bucket.posted.find(
            [&](const Request& waiting) { return waiting.operation == &operation; }))
      return request;
  return nullptr;
}

Arrival& Matching::keep(PointPeer& peer, const PointFrame& frame) {
  const std::size_t bucket = bucket_of(frame.key);
  Arrival& arrival = arrivals_.take();
  arrival.peer = &peer;
  arrival.frame = frame;
  peer.arrivals[bucket].push(arrival);
  any_[bucket].early.add(arrival);
  return arrival;
}

void Matching::drop(Arrival& arrival) noexcept {
  if (arrival.block != nullptr) blocks_.give(*arrival.block);
  arrivals_.give(arrival);
}

void Matching::clear() noexcept {
  any_ = {};
  any_waiting_ = 0;
}

}  // namespace rondo::point

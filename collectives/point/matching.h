// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/operation/operation.h"
#include "collectives/point/parts.h"

namespace rondo::point {

// Brings receives and messages together, and keeps those that wait for each other. All receives
// with one key, whether they name a peer or not, take messages in the order in which they were
// called. A receive from any rank that finds several messages takes the one that came first.
//
// Thread-bound, as Point is; what allocates throws std::bad_alloc.
class Matching {
 public:
  // Takes the oldest message for the receive, which names its peer. Null: there is none, and the
  // receive waits for it.
  Arrival* post(PointPeer& peer, Request& request) noexcept;
  // Does the same for a receive from any rank. If there is a message, it is one from that peer now.
  Arrival* post_any(Request& request) noexcept;
  // Takes the receive that a message from the peer belongs to: the one that was called first. Null
  // if none waits for it.
  Request* take(PointPeer& peer, const PointKey& key) noexcept;
  // The receive that take() would take.
  Request* find(PointPeer& peer, const PointKey& key) const noexcept;
  // Whether a receive from any rank waits.
  bool any_waits() const noexcept { return any_waiting_ != 0; }
  // The receive from any rank of this operation, if it waits; else null.
  const Request* any_of(const operation::Operation& operation) const noexcept;

  // Keeps a message, or its announcement, for the receive that will take it.
  Arrival& keep(PointPeer& peer, const PointFrame& frame);
  void give_memory(Arrival& arrival, std::size_t bytes) { arrival.block = blocks_.take(bytes); }
  // The message has been taken and is needed no more.
  void drop(Arrival& arrival) noexcept;
  std::size_t memory() const noexcept { return blocks_.held(); }

  // Forgets its own lists; those in PointPeer stay.
  void clear() noexcept;

 private:
  static void found(PointPeer& peer, Request& request) noexcept;

  std::array<AnyBucket, point_buckets> any_;
  std::size_t any_waiting_ = 0;  // receives in all of any_
  std::uint64_t turns_ = 0;
  Pool<Arrival> arrivals_;
  Blocks blocks_;
};

}  // namespace rondo::point

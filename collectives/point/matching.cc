// SPDX-License-Identifier: Apache-2.0
//
// Matches receives from any rank. All receives with one key, whether they name a peer or not, take
// messages in the order in which they were called. A receive that finds several messages takes the
// one that came first.
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/text.h"
#include "collectives/point/point.h"

namespace rondo::point {

namespace {

constexpr std::size_t most_senders = 8;

}  // namespace

void Point::post_any(Request& request, base::TimePoint now) {
  AnyBucket& bucket = any_[bucket_of(request.key)];
  request.from_any = true;
  if (Arrival* const arrival = bucket.early.oldest(request.key)) {
    PointPeer& from = peer(arrival->peer);
    from.arrivals[bucket_of(request.key)].take([&](const Arrival& a) { return &a == arrival; });
    bucket.early.remove(*arrival);
    found(from, request);
    take(from, request, *arrival);
    if (from.lost) check_peer(from, now);
    return;
  }
  request.turn = ++turns_;
  bucket.posted.push(request);
  ++any_posted_;
  check_any(now);
}

// From now on the receive is one from this peer.
void Point::found(PointPeer& peer, Request& request) noexcept {
  request.peer = peer.rank;
  ++peer.pending;
}

// The receive that take_receive() would take.
Request* Point::find_receive(PointPeer& peer, const PointKey& key) noexcept {
  const auto waits = [&](const Request& request) { return request.key == key; };
  Request* const one = peer.posted[bucket_of(key)].find(waits);
  if (any_posted_ == 0) return one;
  Request* const other = any_[bucket_of(key)].posted.find(waits);
  return other == nullptr || (one != nullptr && one->turn < other->turn) ? one : other;
}

// The receive that a message from the peer belongs to: the one that was called first. Null if none
// waits for it.
Request* Point::take_receive(PointPeer& peer, const PointKey& key) noexcept {
  base::Fifo<Request>& named = peer.posted[bucket_of(key)];
  const auto waits = [&](const Request& request) { return request.key == key; };
  if (any_posted_ == 0) return named.take(waits);
  base::Fifo<Request>& any = any_[bucket_of(key)].posted;
  const Request *const one = named.find(waits), *const other = any.find(waits);
  if (other == nullptr || (one != nullptr && one->turn < other->turn)) return named.take(waits);
  Request* const request = any.take(waits);
  --any_posted_;
  found(peer, *request);
  return request;
}

// A lost rank ends a receive from any rank, because it might have sent the message. A rank that has
// left in order does not, as long as there is another.
void Point::check_any(base::TimePoint now) {
  if (any_posted_ == 0) return;
  for (const int rank : losses_.peers()) {
    PointPeer& other = peer(rank);
    if (other.gone) continue;
    auto failure =
        losses_.needed(rank, {.linked = other.link != nullptr, .replaceable = true}, now);
    if (!failure) continue;
    if (failure->code != Errc::peer_left) return host_.suspect(std::move(*failure));
    other.gone = true;
    ++gone_;
  }
  if (gone_ == 0 || gone_ + 1 < peers_.size()) return;
  const std::string_view what = gone_ == 1 ? "has left: it destroyed its communicator"
                                           : "have left: they destroyed their communicators";
  host_.suspect(
      {Errc::peer_left, fmt::format("{} {}, and no other rank can send to rank {}",
                                    base::list_of_ranks(losses_.peers()), what, options_.rank)});
}

// The operation's receive from any rank, while it has no message.
const Request* Point::open_any(const operation::Operation& operation) const noexcept {
  for (const AnyBucket& bucket : any_)
    if (const Request* const request = bucket.posted.find(
            [&](const Request& waiting) { return waiting.operation == &operation; }))
      return request;
  return nullptr;
}

std::string Point::missing_from_any(const Request& request) const {
  std::string text =
      fmt::format("no rank has called send with tag {} to rank {}", request.key.tag, options_.rank);
  std::size_t named = 0;
  std::vector<int> left;
  for (const auto& p : peers_) {
    if (!p) continue;
    if (p->left) left.push_back(p->rank);
    if (named == most_senders) continue;
    const std::string tags = tags_at_hand(*p, fmt::format("rank {}", p->rank));
    named += tags.empty() ? 0 : 1;
    text += tags;
  }
  if (!left.empty())
    text +=
        fmt::format("; {} {} left", base::list_of_ranks(left), left.size() == 1 ? "has" : "have");
  return text;
}

}  // namespace rondo::point

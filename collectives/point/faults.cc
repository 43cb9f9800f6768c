// SPDX-License-Identifier: Apache-2.0
//
// Peers that are lost or have left, and what is said of transfers.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "collectives/engine/operation.h"
#include "collectives/point/point.h"
#include "collectives/schedules/call.h"

namespace rondo::point {

namespace {

// A peer that closed its end in order may have left in order: its farewell comes over the control
// plane.
constexpr milliseconds farewell_time{200};
// What a peer has sent before it left may be on its way on a link that has not been seen here.
constexpr milliseconds unseen_time{2000};
constexpr std::size_t most_named = 8;

std::string amount(std::uint64_t count, DType type) {
  schedules::Signature signature;
  signature.operation = Collective::send;
  signature.count = count;
  signature.type = type;
  return schedules::describe_arguments(signature);
}

// "send #5 (10 f32 to rank 1, tag 7)"
std::string call_text(bool sending, std::uint64_t number, std::uint64_t count, DType type, int peer,
                      const PointKey& key) {
  if (key.space != 0)
    return fmt::format("all_to_all_v #{} with {} {} rank {}", number, amount(count, type),
                       sending ? "for" : "from", peer);
  return fmt::format("{} #{} ({} {} rank {}, tag {})", sending ? "send" : "receive", number,
                     amount(count, type), sending ? "to" : "from", peer, key.tag);
}

std::string progress_text(const Parcel& parcel) {
  return fmt::format("{} of {}", base::describe_bytes(parcel.offset),
                     base::describe_bytes(parcel.bytes));
}

}  // namespace

std::string Point::lost_text(const PointPeer& peer, std::string_view what) const {
  return fmt::format("rank {} lost rank {}{}{}: {}", options_.rank, peer.rank,
                     peer.link != nullptr ? " at " : "",
                     peer.link != nullptr ? peer.link->describe() : "", what);
}

bool Point::agree(const PointPeer& peer, const Parcel& parcel, const PointFrame& frame) {
  if (frame.count == parcel.count && frame.type == parcel.type) return true;
  host_.point_failed(
      {Errc::mismatch,
       fmt::format("rank {} called {} where rank {} called {}", peer.rank,
                   call_text(true, frame.call, frame.count, frame.type, options_.rank, frame.key),
                   options_.rank,
                   call_text(false, parcel.operation->number, parcel.count, parcel.type, peer.rank,
                             parcel.key))});
  return false;
}

void Point::broken(transports::Link& link, std::error_code code, std::string_view what, bool clean,
                   base::TimePoint now) {
  PointPeer& from = peer(link.peer());
  from.link = &link;
  from.lost = lost_text(from, what);
  from.lost_in_order = clean;
  from.lost_code = code == Errc::authentication ? Errc::authentication : Errc::peer_lost;
  from.lost_at = now;
  check_peer(from, now);
}

void Point::peer_left(int rank, base::TimePoint now) {
  PointPeer& gone = peer(rank);
  if (gone.left) return;
  gone.left = true;
  gone.left_at = now;
  check_peer(gone, now);
}

void Point::check_farewells(base::TimePoint now) {
  farewell_check_ = base::TimePoint::max();
  for (const auto& p : peers_)
    if (p && (p->left || !p->lost.empty())) check_peer(*p, now);
}

// What it has sent before it left or closed is still to be read, and its farewell may still come.
void Point::check_peer(PointPeer& peer, base::TimePoint now) {
  if (peer.pending == 0) return;
  if (!peer.lost.empty() && !peer.lost_in_order && !peer.left)
    return host_.point_failed({static_cast<Errc>(peer.lost_code.value()), peer.lost,
                               peer.lost_code == Errc::peer_lost ? peer.rank : -1});
  const bool sends = !peer.waiting.empty() || !peer.announced.empty() || !peer.flowing.empty();
  const bool readable = peer.link != nullptr && peer.lost.empty();
  if (peer.left && (sends || !readable)) {
    const base::TimePoint limit =
        std::max(peer.lost_at, peer.left_at) + (peer.lost.empty() ? unseen_time : farewell_time);
    if (sends || now >= limit)
      return host_.point_failed(
          {Errc::peer_left,
           fmt::format("rank {} has left: it destroyed its communicator", peer.rank), peer.rank});
    farewell_check_ = std::min(farewell_check_, limit);
  } else if (!peer.left && !peer.lost.empty()) {
    const base::TimePoint limit = peer.lost_at + farewell_time;
    if (now >= limit) return host_.point_failed({Errc::peer_lost, peer.lost, peer.rank});
    farewell_check_ = std::min(farewell_check_, limit);
  }
}

std::string Point::describe(const engine::Operation& operation) const {
  const PointShape& s = operation.point;
  std::string text;
  if (s.batch) {
    text = fmt::format("batch #{} ({} transfers, {}", operation.number, s.transfers,
                       base::describe_bytes(s.bytes));
  } else if (s.operation == Collective::all_to_all_v) {
    text =
        fmt::format("all_to_all_v #{} ({} here", operation.number, base::describe_bytes(s.bytes));
  } else {
    text = call_text(s.operation == Collective::send, operation.number, operation.signature.count,
                     operation.signature.type, s.peer, {s.tag, 0});
    text.pop_back();
  }
  if (operation.tag[0] != '\0') text.insert(text.find(" ("), fmt::format(" \"{}\"", operation.tag));
  return text;
}

std::string Point::missing(const engine::Operation& operation) const {
  std::string text;
  std::size_t named = 0;
  const auto add = [&](const PointPeer& peer, const Chain<Parcel>& chain) {
    for (const Parcel* parcel = chain.first(); parcel != nullptr; parcel = parcel->next) {
      if (parcel->operation != &operation || named++ >= most_named) continue;
      text += (text.empty() ? "" : "; ") + missing(peer, *parcel);
    }
  };
  for (const auto& p : peers_) {
    if (!p) continue;
    for (const Chain<Parcel>& chain : p->posted) add(*p, chain);
    for (const Chain<Parcel>* chain :
         {&p->waiting, &p->announced, &p->flowing, &p->matched, &p->granted})
      add(*p, *chain);
    for (const Chain<Arrival>& chain : p->arrivals)  // messages to this rank itself
      for (const Arrival* a = chain.first(); a != nullptr; a = a->next)
        if (a->sender != nullptr && a->sender->operation == &operation && named++ < most_named)
          text += (text.empty() ? "" : "; ") + missing(*p, *a->sender);
  }
  if (text.empty()) return fmt::format("rank {} has not sent all of it", options_.rank);
  if (named > most_named) text += fmt::format("; and {} more", named - most_named);
  return text;
}

engine::Operation* Point::oldest() const noexcept {
  engine::Operation* operation = first_;
  while (operation != nullptr && operation->next != nullptr) operation = operation->next;
  return operation;
}

void Point::append_awaited(const engine::Operation& operation, std::vector<int>& ranks) const {
  const auto is_its = [&](const Chain<Parcel>& chain) {
    for (const Parcel* parcel = chain.first(); parcel != nullptr; parcel = parcel->next)
      if (parcel->operation == &operation) return true;
    return false;
  };
  for (const auto& p : peers_) {
    if (!p || p->rank == options_.rank) continue;
    bool awaited = std::ranges::any_of(p->posted, is_its);
    for (const Chain<Parcel>* chain :
         {&p->waiting, &p->announced, &p->flowing, &p->matched, &p->granted})
      awaited = awaited || is_its(*chain);
    if (awaited) ranks.push_back(p->rank);
  }
}

std::string Point::missing(const PointPeer& peer, const Parcel& parcel) const {
  const std::string other =
      parcel.key.space != 0
          ? "all_to_all_v"
          : fmt::format("{} with tag {}", parcel.sending ? "receive" : "send", parcel.key.tag);
  if (parcel.sending && (parcel.offset > 0 || peer.flowing.contains(parcel)))
    return fmt::format("rank {} has taken {} of {}", peer.rank, progress_text(parcel), other);
  if (parcel.sending && peer.waiting.contains(parcel))
    return fmt::format("rank {} takes no more frames from rank {}", peer.rank, options_.rank);
  if (!parcel.sending && peer.granted.contains(parcel))
    return fmt::format("rank {} has sent {} of {}", peer.rank, progress_text(parcel), other);
  if (!parcel.sending && peer.matched.contains(parcel))
    return fmt::format("rank {} has announced {} and was not asked for it yet", peer.rank, other);
  std::string text = fmt::format("rank {} has not called {}", peer.rank, other);
  if (!parcel.sending) text += tags_at_hand(peer);
  return text;
}

std::string Point::tags_at_hand(const PointPeer& peer) const {
  std::set<std::uint32_t> tags;
  for (const Chain<Arrival>& chain : peer.arrivals)
    for (const Arrival* a = chain.first(); a != nullptr; a = a->next)
      if (a->frame.key.space == 0) tags.insert(a->frame.key.tag);
  if (tags.empty()) return {};
  std::string text =
      tags.size() == 1 ? "; it has sent messages with tag " : "; it has sent messages with tags ";
  std::size_t named = 0;
  for (const std::uint32_t tag : tags) {
    if (named++ == most_named) break;
    text += fmt::format("{}{}", named == 1 ? "" : ", ", tag);
  }
  if (tags.size() > most_named) text += " and others";
  return text + " that are not received here";
}

}  // namespace rondo::point

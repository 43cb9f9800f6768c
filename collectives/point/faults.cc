// SPDX-License-Identifier: Apache-2.0
//
// Handles peers that are lost or have left, and says in messages what a transfer waits for.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "collectives/point/point.h"
#include "collectives/schedules/call.h"

namespace rondo::point {

namespace {

constexpr std::size_t most_named = 8;

std::string progress_text(const Parcel& parcel) {
  return fmt::format("{} of {}", base::describe_bytes(parcel.offset),
                     base::describe_bytes(parcel.bytes));
}

}  // namespace

bool Point::agree(const PointPeer& peer, const Parcel& parcel, const PointFrame& frame) {
  if (frame.count == parcel.count && frame.type == parcel.type) return true;
  host_.suspect(
      {Errc::mismatch, fmt::format("rank {} called {} where rank {} called {}", peer.rank,
                                   describe_transfer(true, frame.call, frame.count, frame.type,
                                                     options_.rank, frame.key),
                                   options_.rank,
                                   describe_transfer(false, parcel.operation->number, parcel.count,
                                                     parcel.type, peer.rank, parcel.key))});
  return false;
}

void Point::broken(transports::Link& link, std::error_code code, std::string_view what, bool clean,
                   base::TimePoint now) {
  PointPeer& from = peer(link.peer());
  from.link = &link;
  from.lost = true;
  losses_.lost(link, code, what, clean, now);
  check_peer(from, now);
}

void Point::peer_left(int rank, base::TimePoint now) {
  PointPeer& gone = peer(rank);
  gone.left = true;
  losses_.left(rank, now);
  check_peer(gone, now);
}

void Point::check(base::TimePoint now) {
  losses_.begin_check();
  for (const int rank : losses_.peers()) check_peer(peer(rank), now);
}

// What a peer sent before it left or closed its link may still be read.
void Point::check_peer(PointPeer& peer, base::TimePoint now) {
  if (peer.pending == 0) return;
  const engine::Losses::Need need{
      .sends = !peer.waiting.empty() || !peer.announced.empty() || !peer.flowing.empty(),
      .linked = peer.link != nullptr};
  if (auto failure = losses_.needed(peer.rank, need, now)) host_.suspect(std::move(*failure));
}

std::string Point::late_text(const engine::Operation& operation) const {
  return fmt::format("not done within {:.4g} s on rank {}: {}",
                     std::chrono::duration<double>(operation.time_limit).count(), options_.rank,
                     missing(operation));
}

engine::Traffic Point::traffic() const noexcept {
  engine::Traffic result = traffic_;
  result.staging_bytes = blocks_.held();
  return result;
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

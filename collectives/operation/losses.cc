// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/losses.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace rondo::operation {

Losses::Losses(int rank, int size) : rank_(rank), losses_(static_cast<std::size_t>(size)) {}

Losses::Loss& Losses::loss(int peer) {
  auto& place = losses_[static_cast<std::size_t>(peer)];
  if (!place) {
    place = std::make_unique<Loss>();
    peers_.push_back(peer);
  }
  return *place;
}

Failure Losses::failure(Errc code, int peer, const transports::Link* link,
                        std::string_view what) const {
  const std::string where = link != nullptr ? link->describe() : std::string();
  Failure failure{code, fmt::format("rank {} lost rank {}{}{}: {}", rank_, peer,
                                    link != nullptr ? " at " : "", where, what)};
  if (code == Errc::peer_lost) failure.lost = peer;
  if (code != Errc::authentication) failure.culprits = {peer};  // else anyone may have sent it
  failure.link = where;
  return failure;
}

void Losses::lost(const transports::Link& link, std::error_code code, std::string_view what,
                  bool in_order, base::TimePoint now) {
  Loss& its_loss = loss(link.peer());
  its_loss.lost = true;
  its_loss.in_order = in_order;
  its_loss.failure = failure(code == Errc::authentication ? Errc::authentication : Errc::peer_lost,
                             link.peer(), &link, what);
  its_loss.lost_at = now;
}

void Losses::left(int peer, base::TimePoint now) {
  Loss& its_loss = loss(peer);
  if (!its_loss.left_at) its_loss.left_at = now;
}

std::optional<Failure> Losses::needed(int peer, const Need& need, base::TimePoint now) {
  Loss& its_loss = loss(peer);
  if (its_loss.left_at) {
    if (!need.sends && need.linked && !its_loss.lost) return std::nullopt;  // it can still be read
    const Failure failure{Errc::peer_left,
                          fmt::format("rank {} has left: it destroyed its communicator", peer),
                          peer,
                          {peer}};
    if (need.sends) return failure;
    if (its_loss.lost)
      return wait_until(std::max(its_loss.lost_at, *its_loss.left_at) + leaving_timeout, now,
                        failure);
    // If this rank has not driven since the peer left, a connection with messages of the peer may
    // wait unseen.
    if (!its_loss.needed_at) its_loss.needed_at = now;
    return wait_until(
        std::max(*its_loss.left_at + unseen_time, *its_loss.needed_at + leaving_timeout), now,
        failure);
  }
  if (!its_loss.lost) return std::nullopt;
  const Failure& failure = its_loss.failure;
  const bool replaceable = need.replaceable && failure.code == Errc::peer_lost;
  if (!its_loss.in_order && !replaceable) return failure;
  if (!its_loss.needed_at) its_loss.needed_at = now;
  return wait_until(*its_loss.needed_at + (replaceable ? patient_time : leaving_timeout), now,
                    failure);
}

std::optional<Failure> Losses::wait_until(base::TimePoint limit, base::TimePoint now,
                                          Failure failure) {
  if (now >= limit) return failure;
  next_check_ = std::min(next_check_, limit);
  return std::nullopt;
}

}  // namespace rondo::operation

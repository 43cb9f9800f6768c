// SPDX-License-Identifier: Apache-2.0
//
// Handles peers that are lost or have left, and says in messages what a transfer waits for.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
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

// The receive whose message is arriving as one frame. Null when there is none, or when the message
// has no receive yet.
const Parcel* arriving_receive(const PointPeer& peer) {
  if (!peer.arriving || peer.frame.kind != PointKind::message) return nullptr;
  return peer.parcel != nullptr ? peer.parcel : peer.arrival->receiver;
}

// Whether the transfer waits for copies of its GPU only.
bool waits_for_copies(const Parcel& parcel) noexcept {
  if (parcel.twin != nullptr) return true;
  if (parcel.gpu == nullptr) return false;
  if (!parcel.sending) return parcel.handed;
  return parcel.load_end > parcel.offset && !parcel.handed &&
         GpuTransfers::loaded(parcel) == nullptr;
}

int gpu_of(const Parcel& parcel) noexcept {
  const GpuTransfers* const gpu = parcel.gpu != nullptr ? parcel.gpu : parcel.twin->gpu;
  return gpu->port().gpu().ordinal();
}

// Whether the header of the receive's next frame waits for a slot.
bool is_held(const PointPeer& peer, const Parcel& parcel) noexcept {
  if (!peer.held) return false;
  return peer.frame.kind == PointKind::message ? parcel.key == peer.frame.key
                                               : parcel.message == peer.frame.message;
}

// Calls the function once with each transfer of the operation that has not ended.
template <class Function>
void for_each_open(const PointPeer& peer, const operation::Operation& operation,
                   Function function) {
  const auto look = [&](const Parcel* parcel) {
    if (parcel != nullptr && parcel->operation == &operation) function(*parcel);
  };
  const auto look_at_all = [&](const base::Fifo<Parcel>& chain) {
    for (const Parcel* parcel = chain.first(); parcel != nullptr; parcel = parcel->next)
      look(parcel);
  };
  for (const base::Fifo<Parcel>& chain : peer.posted) look_at_all(chain);
  for (const base::Fifo<Parcel>* chain :
       {&peer.waiting, &peer.announced, &peer.flowing, &peer.matched, &peer.granted, &peer.storing})
    look_at_all(*chain);
  for (const Parcel* p = peer.storing.first(); p != nullptr; p = p->next) look(p->twin);
  look(arriving_receive(peer));
  // A frame that the link has taken whole is in no chain. It may have several frames under way.
  for (auto frame = peer.flying.begin(); frame != peer.flying.end(); ++frame)
    if (frame->parcel != nullptr && frame->parcel->handed &&
        std::none_of(peer.flying.begin(), frame,
                     [&](const Flight& before) { return before.parcel == frame->parcel; }))
      look(frame->parcel);
  for (const base::Fifo<Arrival>& chain : peer.arrivals)  // messages to this rank itself
    for (const Arrival* a = chain.first(); a != nullptr; a = a->next) look(a->sender);
}

}  // namespace

bool Point::agree(const PointPeer& peer, const Parcel& parcel, const PointFrame& frame) {
  if (frame.count == parcel.count && frame.type == parcel.type) return true;
  host_.suspect(
      {Errc::mismatch,
       fmt::format(
           "rank {} called {} where rank {} called {}", peer.rank,
           describe_transfer(true, frame.call, frame.count, frame.type, options_.rank, frame.key),
           options_.rank,
           describe_transfer(false, parcel.operation->number, parcel.count, parcel.type,
                             parcel.from_any ? any_rank : peer.rank, parcel.key))});
  return false;
}

void Point::lost(transports::Link& link, std::error_code code, std::string_view what, bool clean,
                 base::TimePoint now) {
  PointPeer& from = peer(link.peer());
  from.link = &link;
  from.lost = true;
  losses_.lost(link, code, what, clean, now);
  check_peer(from, now);
  check_any(now);
}

void Point::peer_left(int rank, base::TimePoint now) {
  PointPeer& gone = peer(rank);
  gone.left = true;
  losses_.left(rank, now);
  check_peer(gone, now);
  check_any(now);
}

void Point::check(base::TimePoint now) {
  losses_.begin_check();
  for (const int rank : losses_.peers()) check_peer(peer(rank), now);
  check_any(now);
}

// Frames that a peer sent before it left or closed its link may still be read.
void Point::check_peer(PointPeer& peer, base::TimePoint now) {
  if (peer.pending == 0) return;
  const operation::Losses::Need need{
      .sends = !peer.waiting.empty() || !peer.announced.empty() || !peer.flowing.empty(),
      .linked = peer.link != nullptr};
  if (auto failure = losses_.needed(peer.rank, need, now)) host_.suspect(std::move(*failure));
}

std::string Point::late_text(const operation::Operation& operation) const {
  return fmt::format("not done within {:.4g} s on rank {}: {}",
                     std::chrono::duration<double>(operation.time_limit).count(), options_.rank,
                     missing(operation));
}

operation::Traffic Point::traffic() const noexcept {
  operation::Traffic result = traffic_;
  result.staging_bytes = blocks_.held();
  for (const GpuTransfers* gpu : gpus_) result.staging_bytes += gpu->port().bytes();
  return result;
}

std::string Point::missing(const operation::Operation& operation) const {
  std::string text;
  std::size_t named = 0;
  for (const auto& p : peers_) {
    if (!p) continue;
    for_each_open(*p, operation, [&](const Parcel& parcel) {
      if (named++ < most_named) text += (text.empty() ? "" : "; ") + missing(*p, parcel);
    });
  }
  if (named > most_named) text += fmt::format("; and {} more", named - most_named);
  if (const Parcel* const parcel = open_any(operation)) text += missing_from_any(*parcel);
  return text;
}

void Point::append_awaited(const operation::Operation& operation,
                           operation::Awaited& awaited) const {
  if (open_any(operation) != nullptr) {
    for (int rank = 0; rank < options_.size; ++rank) {
      const auto& p = peers_[static_cast<std::size_t>(rank)];
      if (rank != options_.rank && !(p && p->left)) awaited.ranks.push_back(rank);
    }
    return;
  }
  for (const auto& p : peers_) {
    if (!p) continue;
    bool any = false;
    for_each_open(*p, operation, [&](const Parcel& parcel) {
      if (waits_for_copies(parcel))
        awaited.gpu = fmt::format("GPU {}, which has not yet done its copies", gpu_of(parcel));
      else
        any = true;
    });
    if (any && p->rank != options_.rank) awaited.ranks.push_back(p->rank);
  }
}

// Returns what the transfer waits for on this rank's own GPU; else empty.
std::string Point::missing_of_gpu(const PointPeer& peer, const Parcel& parcel) const {
  if (waits_for_copies(parcel)) {
    return fmt::format("GPU {} has not yet copied the data of {}", gpu_of(parcel),
                       parcel.key.space != 0 ? "all_to_all_v"
                       : parcel.sending      ? "send"
                                             : "receive");
  }
  if (parcel.gpu == nullptr) return {};
  const bool loads = parcel.slots.empty() &&
                     (peer.flowing.contains(parcel) ||
                      (peer.waiting.first() == &parcel && parcel.bytes <= transports::eager_bytes));
  if (parcel.sending ? loads : is_held(peer, parcel))
    return fmt::format("other messages use all staging memory for messages of GPU {}",
                       gpu_of(parcel));
  return {};
}

std::string Point::missing(const PointPeer& peer, const Parcel& parcel) const {
  const std::string other =
      parcel.key.space != 0
          ? "all_to_all_v"
          : fmt::format("{} with tag {}", parcel.sending ? "receive" : "send", parcel.key.tag);
  if (std::string text = missing_of_gpu(peer, parcel); !text.empty()) return text;
  if (parcel.handed)
    return fmt::format("rank {} has not read all that rank {} has sent for {}", peer.rank,
                       options_.rank, other);
  if (&parcel == arriving_receive(peer))
    return fmt::format("rank {} has sent the header of {}, and not yet all of its {}", peer.rank,
                       other, base::describe_bytes(parcel.bytes));
  if (parcel.sending && (parcel.offset > 0 || peer.flowing.contains(parcel)))
    return fmt::format("rank {} has taken {} of {}", peer.rank, progress_text(parcel), other);
  if (parcel.sending && peer.waiting.contains(parcel))
    return fmt::format("rank {} takes no more frames from rank {}", peer.rank, options_.rank);
  if (!parcel.sending && peer.granted.contains(parcel))
    return fmt::format("rank {} has sent {} of {}", peer.rank, progress_text(parcel), other);
  if (!parcel.sending && peer.matched.contains(parcel))
    return fmt::format("rank {} has announced {} and was not asked for it yet", peer.rank, other);
  std::string text = fmt::format("rank {} has not called {}", peer.rank, other);
  if (!parcel.sending) text += tags_at_hand(peer, "it");
  return text;
}

std::string Point::tags_at_hand(const PointPeer& peer, std::string_view who) const {
  std::set<std::uint32_t> tags;
  for (const base::Fifo<Arrival>& chain : peer.arrivals)
    for (const Arrival* a = chain.first(); a != nullptr; a = a->next)
      if (a->frame.key.space == 0) tags.insert(a->frame.key.tag);
  if (tags.empty()) return {};
  std::string text =
      fmt::format("; {} has sent messages with tag{} ", who, tags.size() == 1 ? "" : "s");
  std::size_t named = 0;
  for (const std::uint32_t tag : tags) {
    if (named++ == most_named) break;
    text += fmt::format("{}{}", named == 1 ? "" : ", ", tag);
  }
  if (tags.size() > most_named) text += " and others";
  return text + " that are not received here";
}

}  // namespace rondo::point

// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/owners.h"

#include <algorithm>

namespace rondo::engine {

namespace {

lanes::ScheduledLane::Options links_of(const EngineOptions& options) noexcept {
  return {options.rank, options.size, options.checksum};
}

}  // namespace

Owners::Owners(const EngineOptions& options, Engine& engine,
               std::span<transports::Transport* const> transports,
               std::span<operation::LaneCalls, transports::link_lane_count> calls,
               const Verdict& verdict, operation::OwnerHost& host)
    : verdict_(verdict),
      parts_(engine),
      collectives_{
          CollectiveOwners{
              .links = {links_of(options), calls[0], host}, .direct = {}, .two_level = {}},
          CollectiveOwners{
              .links = {links_of(options), calls[1], host}, .direct = {}, .two_level = {}}},
      messages_({options.rank, options.size, options.checksum}, calls[2], host),
      link_owners_{&collectives_[0].links, &collectives_[1].links, &messages_},
      all_(link_owners_.begin(), link_owners_.end()) {
  for (transports::Transport* transport : transports)
    if (transports::Windows* const windows = transport->windows())
      share_memory(options, *windows, calls, host);
}

// Uses the windows for direct operations if all ranks have them, and for the inside of two-level
// operations if all ranks of this host have them.
void Owners::share_memory(const EngineOptions& options, transports::Windows& windows,
                          std::span<operation::LaneCalls, transports::link_lane_count> calls,
                          operation::OwnerHost& host) {
  const std::span<const int> ranks = windows.ranks();
  const bool all = ranks.size() == static_cast<std::size_t>(options.size) &&
                   ranks.size() <= direct::most_direct_ranks;
  const std::span<const int> local = options.hosts.on(options.hosts.host(options.rank));
  const bool beside = options.hosts.count() > 1 && local.size() > 1 &&
                      local.size() <= direct::most_direct_ranks &&
                      std::ranges::includes(ranks, local);
  for (const Priority priority : {Priority::urgent, Priority::bulk}) {
    CollectiveOwners& owners = of(priority);
    operation::LaneCalls& its_calls = calls[static_cast<std::size_t>(priority)];
    if (all && !owners.direct) {
      const direct::DirectOptions direct_options{.rank = options.rank,
                                                 .ranks = ranks,
                                                 .use = direct::DirectUse::all,
                                                 .in_steps = options.reproducible,
                                                 .device_chunk_bytes = options.device_chunk_bytes};
      all_.push_back(&owners.direct.emplace(windows, direct_options, priority, its_calls, host));
    }
    if (beside && !owners.two_level) {
      all_.push_back(&owners.two_level.emplace(
          windows,
          lanes::TwoLevelOwner::Options{options.rank, priority, options.hosts,
                                        options.device_chunk_bytes},
          lanes::TwoLevelOwner::Parts{parts_.take(), parts_.take()}, its_calls, owners.links,
          host));
    }
  }
}

// A template, because most owners are idle: their inlined advance() sees that without a virtual
// call.
template <class Owner>
bool Owners::advance(Owner& owner) {
  return !verdict_.stopped() && owner.advance();
}

bool Owners::advance_memory() {
  bool moved = false;
  for (const Priority priority : {Priority::urgent, Priority::bulk}) {
    CollectiveOwners& owners = of(priority);
    if (owners.direct) moved = advance(*owners.direct) || moved;
    if (owners.two_level) moved = advance(*owners.two_level) || moved;
  }
  return moved;
}

bool Owners::advance_links() {
  using transports::Lane;
  static_assert(transports::link_lanes == std::array{Lane::urgent, Lane::messages, Lane::bulk});
  bool moved = advance(of(Priority::urgent).links);
  moved = advance(messages_) || moved;
  return advance(of(Priority::bulk).links) || moved;
}

std::uint64_t Owners::lacking() const noexcept {
  std::uint64_t ranks = 0;
  for (const CollectiveOwners& owners : collectives_)
    if (owners.direct) ranks |= owners.direct->lacking();
  return ranks;
}

std::uint64_t Owners::awaited() const noexcept {
  std::uint64_t ranks = 0;
  for (const CollectiveOwners& owners : collectives_) {
    if (owners.direct) ranks |= owners.direct->awaited();
    if (owners.two_level) ranks |= owners.two_level->awaited();
  }
  return ranks;
}

base::TimePoint Owners::next_check() const noexcept {
  base::TimePoint next = base::TimePoint::max();
  for (const operation::LinkOwner* owner : link_owners_) next = std::min(next, owner->next_check());
  return next;
}

void Owners::check(base::TimePoint now) {
  for (operation::LinkOwner* owner : link_owners_)
    if (now >= owner->next_check()) owner->check(now);
}

void Owners::clear() noexcept {
  for (operation::OperationOwner* owner : all_) owner->clear();
  devices_.forget_all();
}

operation::Traffic Owners::traffic() const noexcept {
  operation::Traffic result;
  result.staging_bytes = devices_.bytes();
  for (const operation::OperationOwner* owner : all_) {
    const operation::Traffic traffic = owner->traffic();
    result.frames_sent += traffic.frames_sent;
    result.frames_received += traffic.frames_received;
    result.bytes_sent += traffic.bytes_sent;
    result.bytes_received += traffic.bytes_received;
    result.staging_bytes += traffic.staging_bytes;
  }
  return result;
}

}  // namespace rondo::engine

// SPDX-License-Identifier: Apache-2.0
//
// The owners that run an engine's operations: for each priority a lane of links and, where ranks
// share memory, owners that use it; and messages. Decides the order in which they get their turns:
// urgent calls before messages, messages before bulk calls. After a suspicion none gets another
// turn, so nothing leaves this rank.
//
// Threads: thread-bound to whoever holds the engine's lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/engine/options.h"
#include "collectives/engine/verdict.h"
#include "collectives/lanes/direct_owner.h"
#include "collectives/lanes/scheduled_lane.h"
#include "collectives/lanes/two_level_owner.h"
#include "collectives/operation/device_memory.h"
#include "collectives/operation/lane_calls.h"
#include "collectives/operation/operation_source.h"
#include "collectives/operation/owner.h"
#include "collectives/point/point.h"
#include "transports/transport.h"

namespace rondo::engine {

// The owners of the collectives of one priority.
struct CollectiveOwners {
  lanes::ScheduledLane links;
  std::optional<lanes::DirectOwner> direct;  // only where all ranks have windows for each other
  // Only where the other ranks of this rank's host have windows for it, and there are other hosts.
  std::optional<lanes::TwoLevelOwner> two_level;

  // Null if such a call uses links only. device: says so for a call in device memory.
  lanes::TwoLevelOwner* inside(const schedules::Call& call,
                               const operation::DeviceInside& device) noexcept {
    const bool links_only = call.signature.on_device && !device.sums && !device.copies;
    return two_level && !links_only && two_level->runs(call.signature) ? &*two_level : nullptr;
  }
};

class Owners {
 public:
  // All but options outlive the object. engine: only to make operations.
  Owners(const EngineOptions& options, Engine& engine,
         std::span<transports::Transport* const> transports,
         std::span<operation::LaneCalls, transports::link_lane_count> calls, const Verdict& verdict,
         operation::OwnerHost& host);
  Owners(const Owners&) = delete;
  Owners& operator=(const Owners&) = delete;

  CollectiveOwners& of(Priority priority) noexcept {
    return collectives_[static_cast<std::size_t>(priority)];
  }
  point::Point& messages() noexcept { return messages_; }
  operation::DeviceMemories& devices() noexcept { return devices_; }
  // For Transport::open().
  transports::Sinks sinks() const noexcept {
    transports::Sinks sinks;
    std::ranges::copy(link_owners_, sinks.begin());
    return sinks;
  }
  bool has_direct() const noexcept { return collectives_.front().direct.has_value(); }
  // Owners of one priority; those of the others run the same calls. Null: there is none.
  const lanes::TwoLevelOwner* two_level() const noexcept {
    const auto& owner = collectives_.front().two_level;
    return owner ? &*owner : nullptr;
  }

  // Does what can be done now in shared memory. True when anything was.
  bool advance_memory();
  // Does the same on links.
  bool advance_links();
  // The ranks whose stores to memory may let an operation go on: see DirectLane::awaited().
  std::uint64_t awaited() const noexcept;
  // The ranks that direct calls wait for: see DirectLane::lacking().
  std::uint64_t lacking() const noexcept;
  // See LinkOwner.
  base::TimePoint next_check() const noexcept;
  void check(base::TimePoint now);
  // Forgets all operations.
  void clear() noexcept;
  operation::Traffic traffic() const noexcept;
  void append_views(std::vector<operation::PeerView>& views) const {
    for (const operation::OperationOwner* const owner : all_) owner->append_views(views);
  }

 private:
  void share_memory(const EngineOptions& options, transports::Windows& windows,
                    std::span<operation::LaneCalls, transports::link_lane_count> calls,
                    operation::OwnerHost& host);
  template <class Owner>
  bool advance(Owner& owner);

  const Verdict& verdict_;
  operation::OperationSource<operation::DirectOperation> parts_;  // for TwoLevelOwner
  std::array<CollectiveOwners, lane_count> collectives_;          // by priority
  point::Point messages_;
  const std::array<operation::LinkOwner*, transports::link_lane_count> link_owners_;  // by lane
  std::vector<operation::OperationOwner*> all_;
  operation::DeviceMemories devices_;
};

}  // namespace rondo::engine

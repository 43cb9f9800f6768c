// SPDX-License-Identifier: Apache-2.0
//
// Runs the direct collectives of one priority. They need no links, because all ranks load and store
// each other's memory.
//
// Threads: thread-bound to whoever holds the engine's lock. Failures: see owner.h.
#pragma once

#include "collectives/direct/direct.h"
#include "collectives/operation/lane_calls.h"
#include "collectives/operation/owner.h"

namespace rondo::lanes {

// Finds the cause for which the first operation of the lane waits, its mark aside.
operation::Standing standing_of(direct::DirectLane& lane, bool wants_only);

class DirectOwner final : public operation::OperationOwner {
 public:
  // windows, calls and host outlive the owner.
  DirectOwner(transports::Windows& windows, const direct::DirectOptions& options, Priority priority,
              operation::LaneCalls& calls, operation::OwnerHost& host);
  DirectOwner(const DirectOwner&) = delete;
  DirectOwner& operator=(const DirectOwner&) = delete;

  // Posts the operation at once, unless it has to wait for those before it.
  void begin(operation::DirectOperation& operation) { lane_.begin(operation); }

  bool advance() override { return !lane_.idle() && run(); }
  bool look_for(const operation::Operation&) override { return advance(); }
  void clear() noexcept override { lane_.clear(); }
  std::uint64_t awaited() const noexcept { return lane_.awaited(); }
  std::uint64_t lacking() const noexcept { return lane_.lacking(); }
  operation::Standing standing(const operation::Operation& operation, bool wants_only) override {
    // Nothing has been read of other ranks' posts of a later call.
    if (!lane_.idle() && &lane_.first() != &operation) return {WaitCause::ranks};
    return standing_of(lane_, wants_only);
  }
  void append_awaited(const operation::Operation& operation,
                      operation::Awaited& awaited) const override;
  operation::Traffic traffic() const noexcept override;
  void append_views(std::vector<operation::PeerView>& views) const override;

 private:
  bool run();
  void refuse();

  const Priority priority_;
  operation::LaneCalls& calls_;
  operation::OwnerHost& host_;
  direct::DirectLane lane_;
};

}  // namespace rondo::lanes

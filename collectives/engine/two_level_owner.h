// SPDX-License-Identifier: Apache-2.0
//
// Runs what the ranks of one host do for each other in two-level all-reduces, in memory that they
// share. First they sum each segment, so that each rank has the host's sums of its rails. Then
// ScheduledLane carries these sums round the hosts. Finally the ranks copy the results of each
// other's rails. Sums and copies are direct operations (reduce_scatter_v, all_gather_v). They have
// posts and slots of their own. So the sums of later segments and calls do not wait for copies,
// which wait for the network.
//
// Threads: thread-bound to whoever holds the engine's lock. Failures: see owner.h.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "collectives/direct/direct.h"
#include "collectives/engine/lane_calls.h"
#include "collectives/engine/owner.h"
#include "collectives/engine/scheduled_lane.h"

namespace rondo::engine {

class TwoLevelOwner final : public OperationOwner {
 public:
  struct Options {
    int rank = 0;
    Priority priority = Priority::bulk;
    const schedules::Hosts& hosts;
  };
  // Two operations that belong to the owner: parts of calls use them in turn.
  using Parts = std::array<Taken<DirectOperation>, 2>;

  // The ranks of this rank's host have windows for each other, and all of them make this object.
  // All but options and parts outlive the owner.
  TwoLevelOwner(transports::Windows& windows, const Options& options, Parts parts, LaneCalls& calls,
                const ScheduledLane& links, OwnerHost& host);
  TwoLevelOwner(const TwoLevelOwner&) = delete;
  TwoLevelOwner& operator=(const TwoLevelOwner&) = delete;

  // Whether it runs such a call.
  static bool runs(const schedules::Signature& signature) noexcept {
    return signature.algorithm == schedules::Algorithm::two_level &&
           signature.operation == Collective::all_reduce;
  }
  // Comes before ScheduledLane::begin(): the links wait for the sums of each segment. The program
  // of the run is one for Inside::memory.
  void begin(ScheduledOperation& operation);

  bool advance() override { return stages_[copies].first != nullptr && run(); }
  void clear() noexcept override;
  // See DirectLane::awaited().
  std::uint64_t awaited() const noexcept {
    return stages_[sums].lane.awaited() | stages_[copies].lane.awaited();
  }
  void append_awaited(const Operation& operation, std::vector<int>& ranks) const override;
  std::string late_text(const Operation& operation) const override;
  Traffic traffic() const noexcept override;

 private:
  enum Which : std::size_t { sums, copies };
  // Calls go through both stages in the order of their start.
  struct Stage {
    direct::DirectLane lane;
    Taken<DirectOperation> part;  // of the first call: its segment stages[..].done
    ScheduledOperation *first = nullptr, *last = nullptr;
  };
  enum class Outcome { nothing, moved, refused };

  bool run();
  Outcome run(Which which);
  bool begin_part(Which which);
  void end_part(Which which);
  void refuse(const Stage& stage);

  const Priority priority_;
  const std::vector<int> ranks_;             // of this host
  const std::uint32_t local_;                // the place of this rank among them
  std::vector<std::uint32_t> first_slices_;  // of each rank of the host, and the number of slices
  LaneCalls& calls_;
  const ScheduledLane& links_;
  OwnerHost& host_;
  std::array<Stage, 2> stages_;
  std::vector<std::size_t> counts_;  // of the part that begins, by rank of the host
};

}  // namespace rondo::engine

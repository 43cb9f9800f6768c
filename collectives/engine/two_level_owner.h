// SPDX-License-Identifier: Apache-2.0
//
// Runs what the ranks of one host do for each other in two-level operations, in memory that they
// share. There are two stages, and the links of ScheduledLane work between them:
//   sums    Where the operation reduces, the ranks sum each segment, so that each rank has the
//           host's sums of its rails. The links carry these sums round the hosts.
//   copies  Each rank copies what the links have brought to the others. In a reduce_scatter there
//           is nothing to copy: the links bring each rank its own block. In an all_gather the ranks
//           first copy the blocks of this host, without waiting for the links.
// A segment of a stage has a part for each row of rows_inside() in schedules.h. Each part is one
// direct operation (reduce_scatter_v, all_gather_v). The stages have posts and slots of their own.
// So the sums of later segments and calls do not wait for copies, which wait for the network.
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
#include "collectives/schedules/schedules.h"

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
  bool runs(const schedules::Signature& signature) const noexcept {
    return signature.algorithm == schedules::Algorithm::two_level &&
           !rows(signature.operation).empty();
  }
  // Whether a call that this object runs ends with its copies. If not, the links end it.
  static bool ends(const schedules::Signature& signature) noexcept {
    return has_stage(copies, signature.operation);
  }
  // Comes before ScheduledLane::begin(): the links wait for the sums of each segment. The program
  // of the run is one for Inside::memory.
  void begin(ScheduledOperation& operation);

  bool advance() override {
    return (stages_[sums].first != nullptr || stages_[copies].first != nullptr) && run();
  }
  void clear() noexcept override;
  // See DirectLane::awaited().
  std::uint64_t awaited() const noexcept {
    return stages_[sums].lane.awaited() | stages_[copies].lane.awaited();
  }
  void append_awaited(const Operation& operation, Awaited& awaited) const override;
  std::string late_text(const Operation& operation) const override;
  Traffic traffic() const noexcept override;

 private:
  enum Which : std::size_t { sums, copies };
  // Calls go through each stage in the order of their start.
  struct Stage {
    direct::DirectLane lane;
    Taken<DirectOperation> operation;  // does the parts of calls, one after the other
    ScheduledOperation *first = nullptr, *last = nullptr;
  };
  struct Part {
    std::uint64_t segment = 0;
    std::size_t row = 0;
    bool of_inputs = false;  // it combines or copies what the call has put in, not what links bring
  };
  using Rows = std::vector<schedules::Row>;
  enum class Outcome { nothing, moved, refused };

  static bool has_stage(Which which, Collective operation) noexcept {
    const base::Traits& traits = base::traits_of(operation);
    return which == sums ? traits.reduces : !traits.scatters();
  }
  const Rows& rows(Collective operation) const noexcept {
    return rows_[static_cast<std::size_t>(operation)];
  }
  Part next_part(Which which) const noexcept;
  bool ready(Which which, const Part& part) const noexcept;
  bool run();
  Outcome run(Which which);
  bool begin_part(Which which);
  void end_part(Which which);
  void limit_links(ScheduledOperation& whole) const noexcept;
  void refuse(const Stage& stage);

  const Priority priority_;
  const std::vector<int> ranks_;                   // of this host
  const std::size_t local_;                        // the place of this rank among them
  const std::array<Rows, collective_count> rows_;  // by operation
  LaneCalls& calls_;
  const ScheduledLane& links_;
  OwnerHost& host_;
  std::array<Stage, 2> stages_;
  std::vector<schedules::Range> blocks_;  // of the part that begins, by rank of the host
};

}  // namespace rondo::engine

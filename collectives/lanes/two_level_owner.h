// SPDX-License-Identifier: Apache-2.0
//
// Runs what the ranks of one host do for each other in two-level operations, in memory that they
// share. There are two stages, and the links of ScheduledLane work between them:
//   sums    Where the operation reduces, the ranks sum each segment, so that each rank has the
//           host's sums of its rails. The links carry these sums round the hosts. In a broadcast
//           the root shares each segment with its host, when the tokens of all hosts have come. On
//           other hosts, and in a barrier, the ranks wait for each other once.
//   copies  Each rank copies what the links have brought to the others; in a reduce, to the root.
//           In a reduce_scatter there is nothing to copy: the links bring each rank its own block.
//           In an all_gather the ranks first copy the blocks of this host, without waiting for the
//           links. On hosts without the root of a reduce, and in a barrier, the ranks wait for each
//           other once, because links bring the last token to one of them.
// A segment of a stage has a part for each row of rows_inside() in schedules.h. Each part is one
// direct operation: part_of() has the table. The stages have posts and slots of their own. So the
// sums of later segments and calls do not wait for copies, which wait for the network.
//
// Sums of a call in device memory (DeviceInside) are written to the memory of lanes::Staging, which
// the links work on, and copies are made from there. ScheduledLane ends such a call.
//
// Threads: thread-bound to whoever holds the engine's lock. Failures: see owner.h.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "collectives/direct/direct.h"
#include "collectives/lanes/scheduled_lane.h"
#include "collectives/operation/lane_calls.h"
#include "collectives/operation/owner.h"
#include "collectives/schedules/schedules.h"

namespace rondo::lanes {

struct StagesInside {
  bool sums = false, copies = false;
};

class TwoLevelOwner final : public operation::OperationOwner {
 public:
  struct Options {
    int rank = 0;
    Priority priority = Priority::bulk;
    const schedules::Hosts& hosts;
    std::size_t device_chunk_bytes = 0;  // see direct::DirectOptions
  };
  // Two operations that belong to the owner: parts of calls use them in turn.
  using Parts = std::array<operation::Taken<operation::DirectOperation>, 2>;

  // The ranks of this rank's host have windows for each other, and all of them make this object.
  // All but options and parts outlive the owner.
  TwoLevelOwner(transports::Windows& windows, const Options& options, Parts parts,
                operation::LaneCalls& calls, ScheduledLane& links, operation::OwnerHost& host);
  TwoLevelOwner(const TwoLevelOwner&) = delete;
  TwoLevelOwner& operator=(const TwoLevelOwner&) = delete;

  // Whether it runs such a call. A mean of integers goes over links alone: its sums are larger than
  // its elements. So do calls with a root in device memory.
  bool runs(const schedules::Signature& signature) const noexcept {
    return signature.algorithm == schedules::Algorithm::two_level &&
           kernels::find_integer_mean(signature.type, signature.op) == nullptr &&
           !(signature.on_device && schedules::has_root(signature.operation));
  }
  // None unless it runs such a call.
  StagesInside stages_of(const schedules::Signature& signature) const noexcept {
    if (!runs(signature)) return {};
    return {part_of(sums, signature).has_value(), part_of(copies, signature).has_value()};
  }
  // Whether a call that this object runs ends with its copies. If not, ScheduledLane ends it.
  bool ends(const schedules::Signature& signature) const noexcept {
    return part_of(copies, signature) && !signature.on_device;
  }
  // Comes before ScheduledLane::begin(): the links wait for the sums of each segment. The program
  // of the run is one for Inside::memory.
  void begin(operation::ScheduledOperation& operation);

  bool advance() override {
    return (stages_[sums].first != nullptr || stages_[copies].first != nullptr) && run();
  }
  void clear() noexcept override;
  // See DirectLane::awaited().
  std::uint64_t awaited() const noexcept {
    return stages_[sums].lane.awaited() | stages_[copies].lane.awaited();
  }
  operation::Standing standing(const operation::Operation& operation, bool wants_only) override;
  void append_awaited(const operation::Operation& operation,
                      operation::Awaited& awaited) const override;
  operation::Traffic traffic() const noexcept override;
  void append_views(std::vector<operation::PeerView>& views) const override;

 private:
  enum Which : std::size_t { sums, copies };
  // Calls go through each stage in the order of their start.
  struct Stage {
    direct::DirectLane lane;
    operation::Taken<operation::DirectOperation>
        operation;  // does the parts of calls, one after the other
    operation::ScheduledOperation *first = nullptr, *last = nullptr;
  };
  struct Part {
    std::uint64_t segment = 0;
    std::size_t row = 0;
    bool of_inputs = false;  // it combines or copies what the call has put in, not what links bring
  };
  using Rows = std::vector<schedules::Row>;
  enum class Outcome { nothing, moved, refused };

  // Returns what the ranks of this host do in a stage. A barrier comes once, others for each row of
  // a segment.
  std::optional<Collective> part_of(Which which,
                                    const schedules::Signature& signature) const noexcept;
  const Rows& rows(Collective operation) const noexcept {
    return rows_[static_cast<std::size_t>(operation)];
  }
  Part next_part(Which which) const noexcept;
  bool ready(Which which, const Part& part) const;
  bool run();
  Outcome run(Which which);
  bool begin_part(Which which);
  void give_memory(Which which, const Part& part, schedules::Call& call);
  void lay_out(const operation::ScheduledOperation& whole, const Part& part);
  void end_part(Which which);
  bool ends_segment(const operation::ScheduledOperation& whole) const noexcept;
  void limit_links(operation::ScheduledOperation& whole) const noexcept;
  void refuse(const Stage& stage);

  const Priority priority_;
  const std::vector<int> ranks_;                   // of this host
  const std::size_t local_;                        // the place of this rank among them
  const std::array<Rows, collective_count> rows_;  // by operation
  operation::LaneCalls& calls_;
  ScheduledLane& links_;
  operation::OwnerHost& host_;
  std::array<Stage, 2> stages_;
  std::vector<schedules::Range> blocks_;  // of the part that begins, by rank of the host
};

}  // namespace rondo::lanes

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/plan/planner.h"
#include "lib/control/control.h"
#include "lib/record.h"
#include "lib/rendezvous/rendezvous.h"

namespace rondo::lib {

// Decides how calls of a communicator run: it has the costs of the links, which are the same on all
// ranks, and the planner's choice for each size.
//
// Threads: choose() is thread-safe; begin() and what comes before it are for the thread that
// connects. Locks: mutex_ for what was chosen.
class Plans {
 public:
  // Both outlive the object.
  Plans(const rendezvous::Place& place, const Options& options) noexcept
      : place_(place), options_(options) {}

  // Before the ranks join, when the options are complete: on rank 0 finds the constants that need
  // not be measured. Throws Error for a file that cannot be used.
  void prepare();
  // Makes all ranks use rank 0's constants. All ranks may measure these now. Throws Error.
  void agree(const Record& rank_zero, const HostMap& hosts,
             const std::vector<transports::Transport*>& routes, control::Control& control);
  // Ends the preparation. direct, direct_on_gpus: whether calls can be direct. transports: their
  // names, for the log ("tcp").
  void begin(bool direct, bool direct_on_gpus, const std::string& transports);

  CostSource source() const noexcept { return source_; }
  std::string describe_source() const;  // in words, for rank 0's log
  const PlanConstants& constants() const noexcept { return constants_; }
  // The algorithm that the options ask for.
  std::optional<schedules::Algorithm> wanted() const noexcept { return wanted_.algorithm; }
  // Whether two-level operations on GPUs use their memory inside each host, where they can.
  bool inside_on_gpus() const noexcept {
    return wanted() == schedules::Algorithm::two_level && topology_.hosts > 1;
  }

  // Returns the plan of a call. staged: its buffers are on a GPU. Throws Error(invalid_argument)
  // for an operation or type that does not exist, and for a count that no memory can hold.
  plan::Plan choose(Collective operation, std::size_t count, DType type, bool staged);

 private:
  using BySize = std::unordered_map<std::uint64_t, plan::Plan>;

  CostSource find_source();
  void measure(const HostMap& hosts, const std::vector<transports::Transport*>& routes,
               control::Control& control);
  const plan::Plan& remember(BySize& plans, Collective operation, std::uint64_t bytes,
                             const plan::Plan& plan);

  const rendezvous::Place& place_;
  const Options& options_;
  CostSource source_ = CostSource::defaults;  // once joined: rank 0's
  PlanConstants constants_;
  plan::Topology topology_;
  plan::PlanOptions wanted_;
  bool direct_ = false, direct_on_gpus_ = false;
  std::string transports_;
  std::mutex mutex_;  // different threads may start operations of different lanes
  BySize plans_[collective_count], staged_plans_[collective_count];
};

}  // namespace rondo::lib

// SPDX-License-Identifier: Apache-2.0
//
// Chooses the algorithm, the segments and the depth of a call. All functions here are pure, so
// thread-safe: every rank gets the same plan from the same arguments.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <rondo/constants.h>

#include "collectives/plan/costs.h"
#include "collectives/schedules/schedule.h"

namespace rondo::plan {

struct PlanOptions {
  std::optional<schedules::Algorithm> algorithm = std::nullopt;
  std::size_t segment_bytes = 0;                     // 0: choose
  int depth = 0;                                     // 0: choose
  std::size_t staging_bytes = std::size_t{8} << 20;  // of one lane
  bool reproducible = false;                         // only algorithms for which is_reproducible()
  bool staged = false;  // all values lie in staging memory, whatever the operation
};

struct Plan {
  schedules::Algorithm algorithm = schedules::Algorithm::star;
  std::size_t segment_bytes = 0;  // bytes of a segment, of all blocks together
  int depth = 1;
  double seconds = 0;  // predicted
};

// bytes: of the whole buffer, which is the larger of the two where input and output differ. The
// choice is monotone: as bytes grow, an algorithm that is no longer chosen is never chosen again.
// Throws Error(unsupported) when the wanted algorithm does not exist for the operation; the message
// lists the algorithms that exist. Allocates nothing unless it throws.
Plan choose_plan(Collective operation, std::size_t bytes, const Topology& topology,
                 const PlanConstants& constants, const PlanOptions& options = {});

// Whether the result has the bits of a sum in rank order, or nothing is summed.
bool is_reproducible(schedules::Algorithm algorithm, Collective operation) noexcept;

// Every candidate with its predicted time: first the chosen one, then the others from fast to slow.
// Throws as choose_plan does.
std::vector<Plan> list_plans(Collective operation, std::size_t bytes, const Topology& topology,
                             const PlanConstants& constants, const PlanOptions& options = {});

}  // namespace rondo::plan

// SPDX-License-Identifier: Apache-2.0
//
// A pure function: (operation, bytes, topology, constants) -> plan. Every rank computes it from the
// same arguments.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/costs.h"
#include "collectives/schedules/schedule.h"

namespace rondo::plan {

struct PlanOptions {
  std::optional<schedules::Algorithm> algorithm = std::nullopt;
  std::size_t segment_bytes = 0;                     // 0: choose
  int depth = 0;                                     // 0: choose
  std::size_t staging_bytes = std::size_t{8} << 20;  // of one lane
  bool reproducible = false;  // only algorithms whose result depends on rank order alone
};

struct Plan {
  schedules::Algorithm algorithm = schedules::Algorithm::star;
  std::size_t segment_bytes = 0;  // of the segment of the whole buffer (all blocks together for
                                  // all_gather and reduce_scatter)
  int depth = 1;
  double seconds = 0;  // predicted
};

// Allocates nothing unless it throws.
// bytes: of the whole buffer: count * size_of(type), for all_gather and reduce_scatter of the
// larger of the two buffers. The chosen algorithm is monotone in bytes: as bytes grow an algorithm
// once left does not come back. Throws Error(unsupported) when the wanted algorithm does not exist
// for the operation; the message lists those that do.
Plan choose_plan(Collective operation, std::size_t bytes, const Topology& topology,
                 const CostConstants& constants, const PlanOptions& options = {});

// Whether the bits of the result are those of the sum in rank order (or nothing is summed).
bool is_reproducible(schedules::Algorithm algorithm, Collective operation) noexcept;

// Every candidate with its predicted time: the chosen one, then the others from fast to slow.
std::vector<Plan> list_plans(Collective operation, std::size_t bytes, const Topology& topology,
                             const CostConstants& constants, const PlanOptions& options = {});

}  // namespace rondo::plan

// SPDX-License-Identifier: Apache-2.0
//
// The cost formulas: one row for each row of schedules/algorithms.h, in its order. costs.h makes
// shapes of them for a topology.
#pragma once

#include <limits>

#include "collectives/plan/costs.h"
#include "collectives/schedules/schedule.h"

namespace rondo::plan {

// What an algorithm moves with one kind of link; the fields are those of Traffic and Shape.
struct Flat {
  double slices = 1;
  double hops = 0, path_bytes = 0, path_reduce = 0, path_frames = 0;
  double busy_bytes = 0, busy_reduce = 0, busy_frames = 0;
  double frames = 0, bytes = 0, reduce = 0;
};

// What of it crosses between hosts that hold several ranks: hops of the longest path, and bytes of
// the busiest host on that path and in all. share: of the frames, and of the bytes on hosts.
struct Crossing {
  double hops = 0, path_bytes = 0, host_bytes = 0, share = 0;
};

struct CostRow {
  schedules::Algorithm algorithm = schedules::Algorithm::direct;
  Collective operation = Collective::barrier;
  // With one kind of link, from two ranks; null where `levels` holds for every topology.
  Flat (*flat)(int ranks) = nullptr;
  // Null for algorithms with `levels`.
  Crossing (*crossing)(const Flat& flat, const Topology& topology) = nullptr;
  // Of an algorithm that tells links within hosts from those between: it is worth trying where
  // there are several hosts and one of them has several ranks.
  Shape (*levels)(const Topology& topology) = nullptr;
  // The planner tries it up to this number of ranks.
  int most_ranks = std::numeric_limits<int>::max();
  // Frames stay within transports::eager_bytes: ranks exchange in both directions at once.
  bool eager_frames = false;
};

// Requires supports().
const CostRow& cost_row(schedules::Algorithm algorithm, Collective operation) noexcept;

}  // namespace rondo::plan

// SPDX-License-Identifier: Apache-2.0
//
// The cost formulas: one row for each row of schedules/algorithms.h, in the same order. shape_of
// (costs.h) applies them to a topology.
#pragma once

#include <cstddef>
#include <limits>

#include "collectives/plan/costs.h"
#include "collectives/schedules/schedule.h"

namespace rondo::plan {

// Counts what an algorithm moves when all links are of one kind. The fields are those of Traffic
// and Shape.
struct Flat {
  double slices = 1;
  double hops = 0, path_bytes = 0, path_reduce = 0, path_frames = 0;
  double busy_bytes = 0, busy_reduce = 0, busy_frames = 0;
  double frames = 0, bytes = 0, reduce = 0;
};

// The part that crosses between hosts with several ranks: hops and bytes on the longest path, and
// all bytes of the busiest host. share: the part of the frames that crosses. Links within hosts
// keep 1 - share of the frames and of the bytes.
struct Crossing {
  double hops = 0, path_bytes = 0, host_bytes = 0, share = 0;
};

struct CostRow {
  schedules::Algorithm algorithm = schedules::Algorithm::direct;
  Collective operation = Collective::barrier;
  // For links of one kind and at least two ranks. Null where `levels` holds for every topology.
  Flat (*flat)(int ranks) = nullptr;
  // For several hosts with several ranks. Null for algorithms with `levels`.
  Crossing (*crossing)(const Flat& flat, const Topology& topology) = nullptr;
  // For an algorithm that treats links within hosts and between hosts differently. The planner
  // tries it where there are several hosts and one of them has several ranks.
  Shape (*levels)(const Topology& topology) = nullptr;
  // The planner tries it up to this number of ranks.
  int most_ranks = std::numeric_limits<int>::max();
  // Frames are at most transports::eager_bytes, because ranks exchange in both directions at once.
  bool eager_frames = false;
  // Frames that the planner tries are at most this large. A wanted segment may need larger ones.
  std::size_t most_frame_bytes = std::numeric_limits<std::size_t>::max();
};

// Requires supports().
const CostRow& cost_row(schedules::Algorithm algorithm, Collective operation) noexcept;

}  // namespace rondo::plan

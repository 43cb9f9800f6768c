// SPDX-License-Identifier: Apache-2.0
//
// What an algorithm moves, as numbers: the coefficients of the planner's cost formulas (docs/planner.md). A pure function, and
// the checker's counts are its test.
#pragma once

#include <cstdint>

#include "collectives/schedule.h"

namespace rondo {

// Bytes are in units of the whole buffer, frames and hops are counts, all for one segment that is the whole buffer.
struct Shape {
  double slices = 1;
  double hops = 0;  // frames in a row
  // On the longest path of one segment that has the machine to itself:
  double path_bytes = 0, path_reduce = 0;
  double path_frames = 0;  // frames that a rank on it handles one after another, beyond the first of each hop
  // On the busiest rank: bytes in the busier direction, bytes combined, frames sent and received.
  double busy_bytes = 0, busy_reduce = 0, busy_frames = 0;
  // All ranks together: frames and bytes sent, bytes combined.
  double frames = 0, bytes = 0, reduce = 0;
};

// Requires supports(); ranks >= 1.
Shape shape_of(Algorithm algorithm, Collective operation, int ranks);

// Whether ranks need scratch memory for values that are not their output: then segments in flight are bounded by staging memory.
bool needs_staging(Collective operation) noexcept;

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Counts what an algorithm moves, as numbers: the coefficients of the planner's cost formulas
// (docs/reference/planner.md). Pure functions; tests compare them with what the checker counts.
#pragma once

#include <cstdint>

#include "collectives/schedules/schedule.h"

namespace rondo::plan {

struct Topology {
  int ranks = 1;
  int hosts = 1;
  int ranks_per_host = 1;     // the largest number of ranks on one host
  int cores_per_host = 1;     // of that host
  bool in_rank_order = true;  // Hosts::in_rank_order: the ranks of a host are consecutive
};

// cores: of the host with the most ranks.
Topology topology_of(const schedules::Hosts& hosts, int ranks, int cores);

// Counts what crosses one kind of link, for one segment that is the whole buffer. Bytes are in
// units of that buffer; frames and hops are counts.
struct Traffic {
  // The longest path of a segment that has the machine to itself:
  double hops = 0;  // frames in a row
  double path_bytes = 0;
  // Frames that a rank on the path handles one after another, beyond the first of each hop.
  double path_frames = 0;
  // The busiest rank's, in its busier direction; bytes between hosts: the busiest host's.
  double busy_bytes = 0;
  double busy_frames = 0;  // sent and received
};

struct Shape {
  double slices = 1;
  Traffic host = {}, network = {};
  double path_reduce = 0, busy_reduce = 0;  // bytes combined on the path, and by the busiest rank
  // All ranks together: frames and bytes sent, bytes combined.
  double frames = 0, bytes = 0, reduce = 0;
};

// Requires supports(). Exact on one host and with one rank on each host, except that path and busy
// bytes of halving, two_shot and pairwise are multiplied by `turning` (tuning.h). With several
// ranks on each of several hosts it is an estimate, never less than the bytes that must cross.
Shape shape_of(schedules::Algorithm algorithm, Collective operation, const Topology& topology);

// Whether ranks need staging memory for values that are not their output. That memory then limits
// the segments in flight.
bool needs_staging(Collective operation) noexcept;

}  // namespace rondo::plan

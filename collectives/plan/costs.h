// SPDX-License-Identifier: Apache-2.0
//
// What an algorithm moves, as numbers: the coefficients of the planner's cost formulas
// (docs/planner.md). A pure function, and the checker's counts are its test.
#pragma once

#include <cstdint>

#include "collectives/schedules/schedule.h"

namespace rondo::plan {

// Measured or default costs of a kind of link, the letters of docs/planner.md.
struct LinkCosts {
  double latency_s = 8e-6;  // a: one frame, end to end
  double seconds_per_byte =
      4e-10;  // b: one direction of a link; between hosts: of all links of a host together
  double frame_s =
      3e-6;  // f: cost of one more frame on the sender and the receiver, not overlapped
};

struct CostConstants {
  LinkCosts host = {};  // between ranks of one host; the default is tcp over loopback
  LinkCosts network = {5e-5, 8.4e-9, 5e-6};  // between hosts; the default is Ethernet of 1 Gbit/s
  double reduce_seconds_per_byte = 5e-11;    // g: combining two sources
};

struct Topology {
  int ranks = 1;
  int hosts = 1;
  int ranks_per_host = 1;     // the largest number of ranks on one host
  int cores_per_host = 1;     // of that host
  bool in_rank_order = true;  // ranks of a host follow each other
};

// cores: of the host with the most ranks.
Topology topology_of(const schedules::Hosts& hosts, int ranks, int cores);

// What crosses one kind of link. Bytes are in units of the whole buffer, frames and hops are
// counts, all for one segment that is the whole buffer.
struct Traffic {
  // On the longest path of one segment that has the machine to itself:
  double hops = 0;  // frames in a row
  double path_bytes = 0;
  double path_frames =
      0;  // frames that a rank on it handles one after another, beyond the first of each hop
  // Of the busiest rank; for bytes between hosts, of the busiest host: in the busier direction.
  double busy_bytes = 0;
  double busy_frames = 0;  // sent and received
};

struct Shape {
  double slices = 1;
  Traffic host = {}, network = {};
  double path_reduce = 0, busy_reduce = 0;  // bytes combined on the path, and by the busiest rank
  double frames = 0, bytes = 0,
         reduce = 0;  // all ranks together: frames and bytes sent, bytes combined
};

// Requires supports(). Exact for one host and for hosts of one rank; for hosts of several, where
// links between hosts take turns with those within, an estimate that is never less than the bytes
// that must cross.
Shape shape_of(schedules::Algorithm algorithm, Collective operation, const Topology& topology);

// Whether ranks need scratch memory for values that are not their output: then segments in flight
// are bounded by staging memory.
bool needs_staging(Collective operation) noexcept;

}  // namespace rondo::plan

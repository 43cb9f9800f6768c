// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/export.h>
#include <rondo/types.h>

namespace rondo {

// Algorithms and plans without a communicator: to print, prove and explain them. Everything here is a pure function of its
// arguments; bad ones throw Error(invalid_argument) or Error(unsupported) that says what is possible.

// "ring", "tree", ...: those that exist for the operation.
RONDO_API std::vector<std::string> list_algorithms(Collective operation);

struct ScheduleQuery {
  Collective operation = Collective::all_reduce;
  std::string algorithm = "ring";
  int ranks = 2;
  int root = 0;
};

// What one rank does for one segment, a line for each step in their order: "round 2: receive slice 1 from 0, reduce, send to 2".
RONDO_API std::vector<std::string> describe_schedule(const ScheduleQuery& query, int rank);

struct ScheduleCheck {
  std::uint64_t segments = 12;  // at once in the simulation
  std::uint32_t depth = 4;      // segments in flight
  std::uint32_t credits =
      1;  // frames that a link takes before the receiver does; 0: none, a send waits for its receive
};

struct ScheduleProof {
  std::string problem;       // empty: the schedule is right; else what is wrong, with rank, step and slice
  std::uint32_t slices = 1;  // of a segment
  std::uint64_t rounds = 0;  // longest chain of dependent frames of one segment
  std::vector<std::uint64_t>
      slices_sent;  // by rank, for one segment: times the bytes of a slice this is what a rank sends
};

// Runs the schedules of all ranks symbolically, as docs/schedules.md describes. At most 1024 ranks.
RONDO_API ScheduleProof check_schedule(const ScheduleQuery& query, const ScheduleCheck& check = {});

struct PlanQuery {
  Collective operation = Collective::all_reduce;
  std::uint64_t bytes =
      0;  // of the whole buffer; for all_gather and reduce_scatter of all ranks' blocks together
  int ranks = 2;
  int ranks_per_host = 0;         // 0: all on one
  int cores_per_host = 0;         // 0: as many as this machine has
  std::string algorithm;          // empty: the planner chooses
  std::size_t segment_bytes = 0;  // 0: likewise
  int depth = 0;                  // 0: likewise
  bool reproducible = false;
};

struct PlanCandidate {
  std::string algorithm;
  std::size_t segment_bytes = 0;
  int depth = 1;
  double seconds = 0;  // predicted
};

// The candidates of the planner; the first is the one it chooses, the others follow from fast to slow.
RONDO_API std::vector<PlanCandidate> explain_plan(const PlanQuery& query);

}  // namespace rondo

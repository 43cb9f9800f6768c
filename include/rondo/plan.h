// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/constants.h>
#include <rondo/export.h>
#include <rondo/types.h>

namespace rondo {

// Algorithms and plans without a communicator: to print, prove and explain them. Every function
// here is a pure function of its arguments, except that PlanQuery::cores_per_host = 0 asks this
// machine. A bad argument throws Error(invalid_argument) or Error(unsupported), which says what is
// possible.

// Returns the algorithms of the operation: "ring", "tree", ...
RONDO_API std::vector<std::string> list_algorithms(Collective operation);

struct ScheduleQuery {
  Collective operation = Collective::all_reduce;
  std::string algorithm = "ring";
  int ranks = 2;
  int root = 0;
  std::vector<int> hosts = {};  // number of the host of each rank; empty: all on one host
};

// Returns what one rank does for one segment, one line for each step, in order: "round 2: receive
// slice 1 from 0, reduce, send to 2".
RONDO_API std::vector<std::string> describe_schedule(const ScheduleQuery& query, int rank);

struct ScheduleCheck {
  std::uint64_t segments = 12;  // of the call that is checked
  std::uint32_t depth = 4;      // segments in flight
  // Frames that a link takes before the receiver does. 0: each send waits for its receive.
  std::uint32_t credits = 1;
};

struct ScheduleProof {
  // Empty if the schedule is right; else what is wrong, with rank, step and slice.
  std::string problem;
  std::uint32_t slices = 1;  // of a segment
  std::uint64_t rounds = 0;  // longest chain of frames of one segment that wait for each other
  // By rank, for one segment. Times the bytes of a slice it is what the rank sends.
  std::vector<std::uint64_t> slices_sent;
};

// Runs the schedules of all ranks with symbols in place of numbers (docs/reference/schedules.md),
// out of place and in place. At most 1024 ranks and 1000 segments.
RONDO_API ScheduleProof check_schedule(const ScheduleQuery& query, const ScheduleCheck& check = {});

struct PlanQuery {
  Collective operation = Collective::all_reduce;
  std::uint64_t bytes = 0;  // of the larger buffer: all blocks together
  int ranks = 2;
  int ranks_per_host = 0;         // of the host with the most; 0: all on one host
  int hosts = 0;                  // 0: as many as it takes
  int cores_per_host = 0;         // 0: as many as this machine has
  std::string algorithm;          // empty: the planner chooses
  std::size_t segment_bytes = 0;  // 0: likewise
  int depth = 0;                  // 0: likewise
  bool reproducible = false;
  PlanConstants constants = default_constants();
};

struct PlanCandidate {
  std::string algorithm;
  std::size_t segment_bytes = 0;
  int depth = 1;
  double seconds = 0;  // predicted
  // By how much `seconds` would fall with no latency, no time for bytes, no cost of further frames,
  // no reduction. Costs that overlap in time do not add up to `seconds`.
  double latency_seconds = 0, byte_seconds = 0, frame_seconds = 0, reduce_seconds = 0;
};

// Returns the planner's candidates. The first is the one that it chooses; the others follow from
// fast to slow. The choice is monotone: as bytes grow, an algorithm once left does not come back.
// So near the size where two algorithms meet another candidate may be faster.
RONDO_API std::vector<PlanCandidate> explain_plan(const PlanQuery& query);

// Hosts and links to simulate. Latencies are those of the network alone: the processors' time for a
// frame is extra. Rates are of payload, as iperf3 shows them.
struct SimulatedHosts {
  int hosts = 4;
  int ranks_per_host = 1;
  bool in_turns = false;  // rank r stands on host r % hosts, otherwise on host r / ranks_per_host
  double link_latency_s = 20e-6;
  double link_bytes_per_s = 1.25e9;  // of a host, in each direction
  std::size_t link_burst_bytes = 0;  // bytes that an idle link takes at once
  double host_latency_s = 2e-6;      // between ranks of a host
  double host_bytes_per_s = 8e9;     // of one rank, in each direction
  double frame_s = 3e-6;             // processor time of a frame, at its sender and at its receiver
  double byte_s = 3e-10;             // processor time of a payload byte, likewise
  double reduce_bytes_per_s = 2e10;  // that a processor reduces
  int cores_per_host = 0;            // 0: one for every rank
  // Cores that all hosts share, as when hosts are namespaces of one machine; 0: not shared.
  int cores = 0;
};

// Ranks or hosts that are slower or late. The seed decides which ones.
struct SimulatedStragglers {
  int count = 0;
  bool hosts = false;  // whole hosts, and their links
  double factor = 1;   // by which their times grow
  double delay_s = 0;  // before they call the operation
  std::uint64_t seed = 1;
};

struct SimulationQuery {
  Collective operation = Collective::all_reduce;
  std::uint64_t bytes = 0;  // as in PlanQuery
  int root = 0;
  std::string algorithm;          // empty: the planner chooses
  std::size_t segment_bytes = 0;  // 0: likewise
  int depth = 0;                  // 0: likewise
  bool reproducible = false;
  SimulatedHosts hosts;
  SimulatedStragglers stragglers;
};

// The result of one simulated run.
struct SimulatedRun {
  std::uint64_t segments = 1;
  double seconds = 0;                    // from the call on the first rank to the end on the last
  double first_done_seconds = 0;         // to the end on the first
  int last_rank = 0;                     // the rank that ends last
  int critical_rank = 0;                 // where the critical path stays longest at a time
  double critical_seconds = 0;           // how long it stays there
  std::uint64_t frames = 0;              // of all ranks
  std::uint64_t bytes = 0;               // payload sent by all ranks
  std::uint64_t link_bytes = 0;          // of them, between hosts
  std::uint64_t busiest_link_bytes = 0;  // in the busier direction of one host's link
  int busiest_host = 0;
  double busiest_link_share = 0;  // share of the time that this direction was busy
  double mean_link_share = 0;     // likewise, mean of all links and both directions
  double busiest_rank_share = 0;  // share of the time that a rank's processor was busy
  double mean_rank_share = 0;
  // One host was simulated for all, because all do the same at the same time. Then all slices of a
  // segment count as equally long.
  bool one_host = false;
};

// A run, and the plan and the stragglers that it had.
struct Simulation : SimulatedRun {
  std::string algorithm;
  std::size_t segment_bytes = 0;
  int depth = 1;
  double predicted_seconds = 0;  // by the planner's formula
  std::vector<int> stragglers;   // ranks, or hosts
};

// Runs the real schedules in the order of the engine against a model of hosts and links
// (docs/reference/simulator.md). Equal queries give equal results. Throws Error(unsupported) at
// once if there are too many frames to simulate; the message has the numbers.
RONDO_API Simulation simulate_plan(const SimulationQuery& query);

}  // namespace rondo

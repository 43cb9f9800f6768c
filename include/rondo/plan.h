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

// Algorithms and plans without a communicator: to print, prove and explain them. Everything here is
// a pure function of its arguments; bad ones throw Error(invalid_argument) or Error(unsupported)
// that says what is possible.

// "ring", "tree", ...: those that exist for the operation.
RONDO_API std::vector<std::string> list_algorithms(Collective operation);

struct ScheduleQuery {
  Collective operation = Collective::all_reduce;
  std::string algorithm = "ring";
  int ranks = 2;
  int root = 0;
  std::vector<int> hosts = {};  // by rank, any number for each host; empty: all on one
};

// What one rank does for one segment, a line for each step in their order: "round 2: receive slice
// 1 from 0, reduce, send to 2".
RONDO_API std::vector<std::string> describe_schedule(const ScheduleQuery& query, int rank);

struct ScheduleCheck {
  std::uint64_t segments = 12;  // at once in the simulation
  std::uint32_t depth = 4;      // segments in flight
  std::uint32_t credits = 1;  // frames that a link takes before the receiver does; 0: none, a send
                              // waits for its receive
};

struct ScheduleProof {
  // Empty: the schedule is right; else what is wrong, with rank, step and slice.
  std::string problem;
  std::uint32_t slices = 1;                // of a segment
  std::uint64_t rounds = 0;                // longest chain of dependent frames of one segment
  std::vector<std::uint64_t> slices_sent;  // by rank, for one segment: times the bytes of a slice
                                           // this is what a rank sends
};

// Runs the schedules of all ranks symbolically, as docs/schedules.md describes. At most 1024 ranks.
RONDO_API ScheduleProof check_schedule(const ScheduleQuery& query, const ScheduleCheck& check = {});

struct PlanQuery {
  Collective operation = Collective::all_reduce;
  std::uint64_t bytes = 0;  // of the whole buffer; where there are blocks of all of them together
  int ranks = 2;
  int ranks_per_host = 0;         // of the fullest host; 0: all on one
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
  // How much of that would be gone with no latency, no bytes, no costs of further frames, no
  // reduction: what each term stands for. Terms that hide each other leave a rest.
  double latency_seconds = 0, byte_seconds = 0, frame_seconds = 0, reduce_seconds = 0;
};

// The candidates of the planner; the first is the one it chooses, the others follow from fast to
// slow. The choice is monotone in bytes, so close to where two algorithms meet one of the others
// may be faster.
RONDO_API std::vector<PlanCandidate> explain_plan(const PlanQuery& query);

// Hosts and links to simulate. Latencies are those of the network, beyond what processors
// spend on a frame; rates are of payload, as iperf3 shows them.
struct SimulatedHosts {
  int hosts = 4;
  int ranks_per_host = 1;
  bool in_turns = false;  // rank r stands on host r % hosts, otherwise on host r / ranks_per_host
  double link_latency_s = 20e-6;
  double link_bytes_per_s = 1.25e9;  // of a host, in each direction
  std::size_t link_burst_bytes = 0;  // that a link takes at once after a rest
  double host_latency_s = 2e-6;      // between ranks of a host
  double host_bytes_per_s = 8e9;     // of one rank, in each direction
  double frame_s = 3e-6;             // processor time of a frame, at its sender and at its receiver
  double byte_s = 3e-10;             // processor time of a payload byte, likewise
  double reduce_bytes_per_s = 2e10;  // that a processor combines
  int cores_per_host = 0;            // 0: one for every rank
  // Shared by all hosts, as where hosts are namespaces of one machine; 0: not shared.
  int cores = 0;
};

// Ranks or hosts that are slower or late; which ones is drawn on the seed.
struct SimulatedStragglers {
  int count = 0;
  bool hosts = false;  // whole hosts, and their links
  double factor = 1;   // of their times
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

struct Simulation {
  std::string algorithm;
  std::size_t segment_bytes = 0;
  int depth = 1;
  std::uint64_t segments = 1;
  double seconds = 0;            // from the call on the first rank to the end on the last
  double predicted_seconds = 0;  // by the planner's formula
  double first_done_seconds = 0;
  int last_rank = 0;                     // to be done
  int critical_rank = 0;                 // at which the critical path stays longest in one go
  double critical_seconds = 0;           // for so long
  std::uint64_t frames = 0;              // of all ranks
  std::uint64_t bytes = 0;               // payload sent by all ranks
  std::uint64_t link_bytes = 0;          // of them, between hosts
  std::uint64_t busiest_link_bytes = 0;  // in the busier direction of one host's link
  int busiest_host = 0;
  double busiest_link_share = 0;  // of the time, in which that direction was busy
  double mean_link_share = 0;     // of all links, both directions
  double busiest_rank_share = 0;  // of the time, in which a rank's processor was busy
  double mean_rank_share = 0;
  std::vector<int> stragglers;  // ranks, or hosts
  // One host has been simulated for all, because all do the same at the same time; then slices of a
  // segment count as equally long.
  bool one_host = false;
};

// Runs the real schedules in the order of the engine against a model of hosts and links
// (docs/simulator.md). Equal queries give equal results. Throws Error(unsupported), at once, when
// there would be too many frames to simulate; the message has the numbers.
RONDO_API Simulation simulate_plan(const SimulationQuery& query);

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Runs the schedules of all ranks against a model of hosts and links instead of bytes, by the rules
// of the engine (schedules/progress.h). Discrete events in whole picoseconds, so that equal
// arguments give equal results on every machine. docs/simulator.md describes the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedules/hosts.h"
#include "collectives/schedules/schedule.h"
#include "transports/transport.h"

namespace rondo::plan {

struct LinkModel {
  // From the last byte sent to the last byte there, beyond the costs of the processors.
  double latency_s = 0;
  double seconds_per_byte = 0;  // of payload
};

struct Fabric {
  int hosts = 1, ranks_per_host = 1;
  bool in_turns = false;  // rank r stands on host r % hosts, otherwise on host r / ranks_per_host
  LinkModel inside;       // of one rank, in each direction
  LinkModel between;      // of one host, in each direction, shared by its ranks
  double frame_s = 0;     // processor time of a frame, at its sender and again at its receiver
  double byte_s = 0;      // processor time of a payload byte, likewise
  double reduce_seconds_per_byte = 0;  // processor time of a byte combined
  // That a link between hosts takes at once after a rest (a token bucket).
  std::size_t burst_bytes = 0;
  // Of a frame, so many bytes are handled before the link starts and after the link is done; all
  // others while it works.
  std::size_t chunk_bytes = std::size_t{128} << 10;
  int cores_per_host = 0;  // 0: one for every rank
  int cores = 0;  // of all hosts together, as where hosts are namespaces; 0: each host has its own
  // Payloads up to this leave their buffer at once.
  std::size_t copied_bytes = transports::eager_bytes;
};

// One rank, or where host is not negative all ranks of that host and its link.
struct Straggler {
  int rank = schedules::no_rank;
  int host = -1;
  // Its processor time and, of a host, its link's time per byte are so many times as long.
  double factor = 1;
  double delay_s = 0;  // it calls the operation this much later
};

struct SimulatedCall {
  Collective operation = Collective::all_reduce;
  schedules::Algorithm algorithm = schedules::Algorithm::ring;
  int root = 0;
  std::uint64_t bytes = 0;  // of the whole buffer, as for choose_plan
  std::size_t segment_bytes = 1;
  std::uint32_t depth = 1;
};

// What is simulated. One host stands for all where every host does the same at the same time:
// operations without a root whose schedule is the same on every host but for a shift, no
// stragglers, no shared cores. Slices then count as equally long.
enum class SimulatedScope : std::uint8_t { automatic, all_hosts, one_host };

struct SimulationLimits {
  SimulatedScope scope = SimulatedScope::automatic;
  std::uint64_t frames = 40'000'000;  // simulated
  std::uint64_t memory_bytes = std::uint64_t{3} << 30;
};

struct SimulatedRun {
  double seconds = 0;             // from the start of the first rank to the end of the last
  double first_done_seconds = 0;  // to the end of the first
  int last_rank = 0;              // to be done
  int critical_rank = 0;          // where the critical path stays longest in one go
  double critical_seconds = 0;    // how long it stays there
  std::uint64_t segments = 1;
  std::uint64_t frames = 0;              // of all ranks
  std::uint64_t bytes = 0;               // payload sent by all ranks
  std::uint64_t link_bytes = 0;          // of them, between hosts
  std::uint64_t busiest_link_bytes = 0;  // of the busier direction of the busiest host
  int busiest_host = 0;
  double busiest_link_share = 0;  // of the time, in which that direction was busy
  double mean_link_share = 0;     // of both directions of all hosts
  double busiest_rank_share = 0;  // of the time, in which the processor of a rank was busy
  double mean_rank_share = 0;
  bool one_host = false;  // stood for all
};

// Frames of all ranks and segments, as the planner counts them: at the root where there are most.
double count_frames(const SimulatedCall& call, const Fabric& fabric);

int host_of(const Fabric& fabric, int rank) noexcept;

// At most 2^20 ranks. Requires supports() and sensible numbers. Throws Error(unsupported) at once
// when the run would exceed a limit; the message has the numbers. Throws Error(corrupt) should the
// schedules stand still.
SimulatedRun simulate(const SimulatedCall& call, const Fabric& fabric,
                      std::span<const Straggler> stragglers, const SimulationLimits& limits = {});

}  // namespace rondo::plan

// SPDX-License-Identifier: Apache-2.0
//
// Runs the schedules of all ranks on a model of hosts and links, without bytes, by the rules of the
// engine (schedules/progress.h). Events have times in whole picoseconds, so equal arguments give
// equal results on every machine. docs/reference/simulator.md describes the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/plan.h>

#include "collectives/schedules/hosts.h"
#include "collectives/schedules/schedule.h"
#include "transports/transport.h"

namespace rondo::plan {

struct LinkModel {
  // From when the last byte is sent until it is there, without the costs of the processors.
  double latency_s = 0;
  double seconds_per_byte = 0;  // of payload
};

// SimulatedHosts (rondo/plan.h) in the units of the model: the time of a byte, not a rate.
struct Fabric {
  int hosts = 1, ranks_per_host = 1;
  bool in_turns = false;  // rank r is on host r % hosts; otherwise on host r / ranks_per_host
  LinkModel inside;       // within a host: of one rank, in each direction
  LinkModel between;      // between hosts: of one host, in each direction, shared by its ranks
  double frame_s = 0;     // processor time of a frame, at its sender and again at its receiver
  double byte_s = 0;      // processor time of a payload byte, likewise
  double reduce_seconds_per_byte = 0;  // processor time of a byte combined
  // Bytes that an idle link between hosts takes at once (a token bucket).
  std::size_t burst_bytes = 0;
  // The processor handles this many bytes of a frame before the link starts and again after the
  // link is done. It handles all others while the link works.
  std::size_t chunk_bytes = std::size_t{128} << 10;
  int cores_per_host = 0;  // 0: one for every rank
  int cores = 0;  // that all hosts share, as namespaces on one machine do; 0: each host has its own
  // A payload of at most this many bytes leaves its buffer when the sender has handed it over. A
  // larger one between hosts leaves when the link has sent it.
  std::size_t copied_bytes = transports::eager_bytes;
};

// A slow rank. If host is not negative: all ranks of that host, and its link.
struct Straggler {
  int rank = schedules::no_rank;
  int host = -1;
  // Multiplies its processor time and, for a host, the time per byte of its link.
  double factor = 1;
  double delay_s = 0;  // it calls the operation so much later
};

struct SimulatedCall {
  Collective operation = Collective::all_reduce;
  schedules::Algorithm algorithm = schedules::Algorithm::ring;
  int root = 0;
  std::uint64_t bytes = 0;  // of the whole buffer, as for choose_plan
  std::size_t segment_bytes = 1;
  std::uint32_t depth = 1;
};

// Describes what is simulated. One host can stand for all where every host does the same at the
// same time. The operation then has no root, and every host has the same schedule except for a
// shift. There are no stragglers and no cores that hosts share. All slices then count as equally
// long.
enum class SimulatedScope : std::uint8_t { automatic, all_hosts, one_host };

struct SimulationLimits {
  SimulatedScope scope = SimulatedScope::automatic;
  std::uint64_t frames = 40'000'000;  // as counted before the run; the run may need twice as many
  std::uint64_t memory_bytes = std::uint64_t{3} << 30;
};

// Frames of all ranks and segments, as the planner counts them. With a root: for the root that
// needs most frames.
double count_frames(const SimulatedCall& call, const Fabric& fabric);

int host_of(const Fabric& fabric, int rank) noexcept;

// A pure function, thread-safe. At most 2^20 ranks. Requires supports(), and no negative times or
// counts. Throws Error(unsupported) when the run exceeds a limit, mostly before it starts; the
// message has the numbers. Throws Error(corrupt) when the schedules deadlock.
SimulatedRun simulate(const SimulatedCall& call, const Fabric& fabric,
                      std::span<const Straggler> stragglers, const SimulationLimits& limits = {});

}  // namespace rondo::plan

// SPDX-License-Identifier: Apache-2.0
//
// The hosts, cores and links of a simulation as servers that take work in the order in which it
// comes. Times are whole picoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/plan/simulator.h"

namespace rondo::plan {

using Picoseconds = std::uint64_t;
Picoseconds picoseconds(double seconds) noexcept;

// The longest stay at one rank on the way to an event, along what it had to wait for.
struct Trail {
  std::uint32_t longest_rank = 0, here = 0;
  Picoseconds longest = 0, since = 0;

  // The way goes on somewhere else from this time on.
  void leave(Picoseconds time) noexcept {
    if (time <= since || time - since <= longest) return;
    longest = time - since;
    longest_rank = here;
  }
  void enter(std::uint32_t rank, Picoseconds time) noexcept {
    here = rank;
    since = time;
  }
};

// first: when the first bytes are on, last: when all are.
struct Passage {
  Picoseconds first = 0, last = 0;
};

class SimulatedFabric {
 public:
  // hosts: those simulated, the first of the fabric.
  SimulatedFabric(const Fabric& fabric, std::span<const Straggler> stragglers, int hosts);

  int host_of(std::uint32_t rank) const noexcept {
    return plan::host_of(fabric_, static_cast<int>(rank));
  }
  Picoseconds start_of(std::uint32_t rank) const noexcept { return delay_[rank]; }

  // Processor time of `rank` for a frame that becomes known at `since`. trail: of what made it
  // ready; replaced when the processor was the reason to wait. For a send, first is when the link
  // may begin; for a receive `here` is when the last byte arrives, and last is when all is handled.
  Passage send(std::uint32_t rank, Picoseconds now, std::uint64_t bytes, Trail& trail);
  Picoseconds receive(std::uint32_t rank, Picoseconds since, Picoseconds here, std::uint64_t bytes,
                      bool reduce, Trail& trail);

  // Through the sender's end of a link from ready.first on; ready.last is when the sender has
  // handed over the last byte.
  Passage leave(std::uint32_t rank, bool inside, Passage ready, std::uint64_t bytes, Trail& trail);
  // Through the receiver's end: arriving.first and .last are when the bytes would come if it were
  // free.
  Picoseconds enter(std::uint32_t rank, bool inside, Passage arriving, std::uint64_t bytes,
                    Trail& trail);
  Picoseconds latency(bool inside) const noexcept {
    return inside ? inside_latency_ : between_latency_;
  }

  // Fills in the shares of what was busy, after so long.
  void report(SimulatedRun& run, Picoseconds time) const;

 private:
  struct Server {
    Picoseconds free = 0, busy = 0;
    std::uint64_t bytes = 0;
    Trail trail;
  };
  struct Work {
    Picoseconds frame = 0, rest = 0,
                chunk = 0;  // rest and chunk: of all payload, of what is not hidden
    Picoseconds all() const noexcept { return frame + rest; }
  };

  Work work(std::uint32_t rank, std::uint64_t bytes, double per_byte) const noexcept;
  Picoseconds take_core(std::uint32_t rank, Picoseconds since, Picoseconds time, Trail& trail);
  Picoseconds begin(Server& server, Picoseconds time, Picoseconds length, Picoseconds burst,
                    Trail& trail);

  Fabric fabric_;
  Picoseconds inside_latency_, between_latency_, burst_;
  std::vector<double> factor_;       // by rank
  std::vector<double> link_factor_;  // by host
  std::vector<Picoseconds> delay_;
  std::vector<Server> ranks_, ports_out_, ports_in_;  // by rank
  std::vector<Server> links_out_, links_in_;          // by host
  std::vector<Picoseconds> cores_;                    // when each is free, host by host
  std::size_t cores_together_ = 0;                    // in one pool; 0: a core for every rank
  bool one_pool_ = false;
};

}  // namespace rondo::plan

// SPDX-License-Identifier: Apache-2.0
//
// The hosts, cores and links of a simulation, as servers that take work in the order in which it
// comes. Times are whole picoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/plan/simulator.h"

namespace rondo::plan {

using Picoseconds = std::uint64_t;
Picoseconds picoseconds(double seconds) noexcept;

// The critical path to an event, which follows what each event had to wait for: the rank where it
// stayed longest, and the rank where it is now.
struct Trail {
  std::uint32_t longest_rank = 0, here = 0;
  Picoseconds longest = 0, since = 0;

  // The path leaves its rank at this time.
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

// When the first bytes have passed, and when all have.
struct Passage {
  Picoseconds first = 0, last = 0;
};

// Thread-bound. Only the constructor allocates.
class SimulatedFabric {
 public:
  // hosts: how many hosts are simulated, the first ones of the fabric.
  SimulatedFabric(const Fabric& fabric, std::span<const Straggler> stragglers, int hosts);

  int host_of(std::uint32_t rank) const noexcept {
    return plan::host_of(fabric_, static_cast<int>(rank));
  }
  Picoseconds start_of(std::uint32_t rank) const noexcept { return delay_[rank]; }

  // Take processor time of `rank` for a frame. trail: the path to what made the frame ready; it is
  // replaced when the frame had to wait for the processor.
  // send() starts at `now`; the result's first is when the link may begin, and last is when the
  // sender has handed over all bytes. receive() can start at `since`, when the rank may begin to
  // handle the frame, and `here` is when its last byte arrives. It returns when all is handled.
  Passage send(std::uint32_t rank, Picoseconds now, std::uint64_t bytes, Trail& trail);
  Picoseconds receive(std::uint32_t rank, Picoseconds since, Picoseconds here, std::uint64_t bytes,
                      bool reduce, Trail& trail);

  // Passes the sender's end of a link, from ready.first on. ready.last is when the sender has
  // handed over the last byte.
  Passage leave(std::uint32_t rank, bool inside, Passage ready, std::uint64_t bytes, Trail& trail);
  // Passes the receiver's end. arriving: when the bytes would come if that end were free. Returns
  // when the last byte is there.
  Picoseconds enter(std::uint32_t rank, bool inside, Passage arriving, std::uint64_t bytes,
                    Trail& trail);
  Picoseconds latency(bool inside) const noexcept {
    return inside ? inside_latency_ : between_latency_;
  }

  // Fills in the busy shares and the bytes of links, for a run that took `time`.
  void report(SimulatedRun& run, Picoseconds time) const;

 private:
  struct Server {
    Picoseconds free = 0, busy = 0;
    std::uint64_t bytes = 0;
    Trail trail;
  };
  struct Work {
    // frame: per frame. rest: for all payload. chunk: for the payload whose cost the link's own
    // time does not hide (Fabric::chunk_bytes).
    Picoseconds frame = 0, rest = 0, chunk = 0;
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
  std::vector<Server> ranks_, ports_out_, ports_in_;  // by rank; ports: links within hosts
  std::vector<Server> links_out_, links_in_;          // by host: links between hosts
  std::vector<Picoseconds> cores_;                    // when each is free, pool by pool
  std::size_t cores_together_ = 0;                    // cores in a pool; 0: a core for every rank
  bool one_pool_ = false;
};

}  // namespace rondo::plan

// SPDX-License-Identifier: Apache-2.0
#include "collectives/plan/simulated_fabric.h"

#include <algorithm>
#include <cmath>

namespace rondo::plan {

Picoseconds picoseconds(double seconds) noexcept {
  return static_cast<Picoseconds>(std::llround(seconds * 1e12));
}

int host_of(const Fabric& fabric, int rank) noexcept {
  return fabric.in_turns ? rank % fabric.hosts : rank / fabric.ranks_per_host;
}

SimulatedFabric::SimulatedFabric(const Fabric& fabric, std::span<const Straggler> stragglers,
                                 int hosts)
    : fabric_(fabric),
      inside_latency_(picoseconds(fabric.inside.latency_s)),
      between_latency_(picoseconds(fabric.between.latency_s)),
      burst_(
          picoseconds(static_cast<double>(fabric.burst_bytes) * fabric.between.seconds_per_byte)) {
  const auto host_count = static_cast<std::size_t>(hosts);
  const auto ranks = host_count * static_cast<std::size_t>(fabric.ranks_per_host);
  factor_.assign(ranks, 1);
  link_factor_.assign(host_count, 1);
  delay_.assign(ranks, 0);
  ranks_.resize(ranks);
  if (fabric.ranks_per_host > 1) {
    ports_out_.resize(ranks);
    ports_in_.resize(ranks);
  }
  links_out_.resize(host_count);
  links_in_.resize(host_count);
  one_pool_ = fabric.cores > 0;
  const std::size_t sharing = one_pool_ ? ranks : static_cast<std::size_t>(fabric.ranks_per_host);
  const auto pool = static_cast<std::size_t>(one_pool_ ? fabric.cores : fabric.cores_per_host);
  if (pool > 0 && pool < sharing) {
    cores_together_ = pool;
    cores_.assign(one_pool_ ? pool : pool * host_count, 0);
  }
  for (const Straggler& s : stragglers) {
    if (s.host >= 0) link_factor_[static_cast<std::size_t>(s.host)] = s.factor;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (s.host >= 0 ? host_of(rank) != s.host : static_cast<int>(rank) != s.rank) continue;
      factor_[rank] = s.factor;
      delay_[rank] = picoseconds(s.delay_s);
    }
  }
}

SimulatedFabric::Work SimulatedFabric::work(std::uint32_t rank, std::uint64_t bytes,
                                            double per_byte) const noexcept {
  const double factor = factor_[rank];
  const std::uint64_t chunk = std::min<std::uint64_t>(bytes, fabric_.chunk_bytes);
  return {picoseconds(fabric_.frame_s * factor),
          picoseconds(static_cast<double>(bytes) * per_byte * factor),
          picoseconds(static_cast<double>(chunk) * per_byte * factor)};
}

// Runs the rank on the core of its pool that is free first.
Picoseconds SimulatedFabric::take_core(std::uint32_t rank, Picoseconds since, Picoseconds time,
                                       Trail& trail) {
  Server& own = ranks_[rank];
  Picoseconds start = std::max(since, own.free);
  Picoseconds* core = nullptr;
  if (cores_together_ != 0) {
    const std::size_t pool = one_pool_ ? 0 : static_cast<std::size_t>(host_of(rank));
    const auto first = cores_.begin() + static_cast<std::ptrdiff_t>(pool * cores_together_);
    core = &*std::min_element(first, first + static_cast<std::ptrdiff_t>(cores_together_));
    start = std::max(start, *core);
  }
  if (own.free > since) trail = own.trail;
  own.free = start + time;
  own.busy += time;
  own.trail = trail;
  if (core != nullptr) *core = start + time;
  return start;
}

Passage SimulatedFabric::send(std::uint32_t rank, Picoseconds now, std::uint64_t bytes,
                              Trail& trail) {
  const Work w = work(rank, bytes, fabric_.byte_s);
  const Picoseconds start = take_core(rank, now, w.all(), trail);
  return {start + w.frame + w.chunk, start + w.all()};
}

Picoseconds SimulatedFabric::receive(std::uint32_t rank, Picoseconds since, Picoseconds here,
                                     std::uint64_t bytes, bool reduce, Trail& trail) {
  const Work w =
      work(rank, bytes, fabric_.byte_s + (reduce ? fabric_.reduce_seconds_per_byte : 0.0));
  const Picoseconds start = take_core(rank, since, w.all(), trail);
  return std::max(start + w.all(), here + w.frame + w.chunk);
}

// An idle server takes up to a burst at once. server.free may be up to one burst in the future
// without delay, so a server that was idle from the start also has a full burst.
Picoseconds SimulatedFabric::begin(Server& server, Picoseconds time, Picoseconds length,
                                   Picoseconds burst, Trail& trail) {
  if (server.free > time + burst) trail = server.trail;
  server.free = std::max(server.free, time) + length;
  server.busy += length;
  server.trail = trail;
  return std::max(time, server.free - std::min(server.free, burst));
}

Passage SimulatedFabric::leave(std::uint32_t rank, bool inside, Passage ready, std::uint64_t bytes,
                               Trail& trail) {
  const auto host = static_cast<std::size_t>(host_of(rank));
  Server& server = inside ? ports_out_[rank] : links_out_[host];
  const double per_byte = inside ? fabric_.inside.seconds_per_byte
                                 : fabric_.between.seconds_per_byte * link_factor_[host];
  const Picoseconds length = picoseconds(static_cast<double>(bytes) * per_byte);
  const Picoseconds end = begin(server, ready.first, length, inside ? 0 : burst_, trail);
  server.bytes += bytes;
  const Picoseconds last = std::max(end, ready.last);
  return {std::max(ready.first, end - std::min(end, length)), last};
}

Picoseconds SimulatedFabric::enter(std::uint32_t rank, bool inside, Passage arriving,
                                   std::uint64_t bytes, Trail& trail) {
  const auto host = static_cast<std::size_t>(host_of(rank));
  Server& server = inside ? ports_in_[rank] : links_in_[host];
  const double per_byte = inside ? fabric_.inside.seconds_per_byte
                                 : fabric_.between.seconds_per_byte * link_factor_[host];
  const Picoseconds length = picoseconds(static_cast<double>(bytes) * per_byte);
  server.bytes += bytes;
  return std::max(begin(server, arriving.first, length, inside ? 0 : burst_, trail), arriving.last);
}

void SimulatedFabric::report(SimulatedRun& run, Picoseconds time) const {
  const auto whole = static_cast<double>(std::max<Picoseconds>(time, 1));
  const auto share = [&](const Server& server) { return static_cast<double>(server.busy) / whole; };
  for (const Server& rank : ranks_) {
    run.busiest_rank_share = std::max(run.busiest_rank_share, share(rank));
    run.mean_rank_share += share(rank) / static_cast<double>(ranks_.size());
  }
  for (std::size_t host = 0; host < links_out_.size(); ++host) {
    for (const Server* link : {&links_out_[host], &links_in_[host]}) {
      run.mean_link_share += share(*link) / static_cast<double>(2 * links_out_.size());
      run.busiest_link_share = std::max(run.busiest_link_share, share(*link));
      if (link->bytes <= run.busiest_link_bytes) continue;
      run.busiest_link_bytes = link->bytes;
      run.busiest_host = static_cast<int>(host);
    }
    run.link_bytes += links_out_[host].bytes;
  }
}

}  // namespace rondo::plan

// SPDX-License-Identifier: Apache-2.0
#include "collectives/plan/costs.h"

#include <algorithm>

#include "base/traits.h"
#include "collectives/plan/formulas.h"

namespace rondo::plan {

namespace {

Shape with_totals(const Flat& flat) {
  return {.slices = flat.slices,
          .path_reduce = flat.path_reduce,
          .busy_reduce = flat.busy_reduce,
          .frames = flat.frames,
          .bytes = flat.bytes,
          .reduce = flat.reduce};
}

Traffic traffic_of(const Flat& flat) {
  return {.hops = flat.hops,
          .path_bytes = flat.path_bytes,
          .path_frames = flat.path_frames,
          .busy_bytes = flat.busy_bytes,
          .busy_frames = flat.busy_frames};
}

// Several hosts with several ranks each.
Shape spread(const CostRow& row, const Topology& t) {
  const Flat flat = row.flat(t.ranks);
  const Crossing over = row.crossing(flat, t);
  Shape shape = with_totals(flat);
  shape.host = shape.network = traffic_of(flat);
  shape.network.hops = over.hops;
  shape.network.path_bytes = over.path_bytes;
  shape.network.busy_bytes = over.host_bytes;
  shape.network.path_frames *= over.share;
  shape.network.busy_frames *= over.share;
  shape.host.hops -= over.hops;
  shape.host.path_bytes *= 1 - over.share;
  shape.host.path_frames *= 1 - over.share;
  shape.host.busy_bytes *= 1 - over.share;
  shape.host.busy_frames *= 1 - over.share;
  return shape;
}

}  // namespace

Topology topology_of(const schedules::Hosts& hosts, int ranks, int cores) {
  return {.ranks = ranks,
          .hosts = hosts.count(),
          .ranks_per_host = hosts.ranks() == 0 ? ranks : hosts.most_on_a_host(),
          .cores_per_host = cores,
          .in_rank_order = hosts.in_rank_order()};
}

Shape shape_of(schedules::Algorithm algorithm, Collective operation, const Topology& topology) {
  if (topology.ranks < 2) return {};
  const CostRow& row = cost_row(algorithm, operation);
  Topology t = topology;
  t.hosts = std::clamp(t.hosts, 1, t.ranks);
  // At least the average number of ranks, and at most so many that every other host has one.
  t.ranks_per_host =
      std::clamp(t.ranks_per_host, (t.ranks - 1) / t.hosts + 1, t.ranks - t.hosts + 1);
  if (row.levels != nullptr && (t.hosts > 1 || row.flat == nullptr)) return row.levels(t);
  if (t.hosts > 1 && t.ranks_per_host > 1) return spread(row, t);
  const Flat flat = row.flat(t.ranks);
  Shape shape = with_totals(flat);
  (t.hosts > 1 ? shape.network : shape.host) = traffic_of(flat);
  return shape;
}

bool needs_staging(Collective operation) noexcept {
  const base::Extent out = base::traits_of(operation).out;
  return out == base::Extent::on_root || out == base::Extent::own_block;
}

}  // namespace rondo::plan

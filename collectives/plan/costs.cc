// SPDX-License-Identifier: Apache-2.0
//
// n ranks, k = n - 1 others. The leading terms are those of Thakur, Rabenseifner and Gropp
// (Optimization of collective communication operations in MPICH, 2005) and of Sanders, Speck and
// Traeff (two-tree algorithms, 2009); the counts of frames and the pipelined terms are read off the
// schedules.
#include "collectives/plan/costs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/traits.h"
#include "collectives/plan/tuning.h"

namespace rondo::plan {

namespace {

// With one kind of link.
struct Flat {
  double slices = 1;
  double hops = 0, path_bytes = 0, path_reduce = 0, path_frames = 0;
  double busy_bytes = 0, busy_reduce = 0, busy_frames = 0;
  double frames = 0, bytes = 0, reduce = 0;
};

double floor_log2(int value) {
  return std::bit_width(static_cast<unsigned>(value)) - 1;
}
double ceil_log2(int value) {
  return std::bit_width(static_cast<unsigned>(value - 1));
}

Flat ring(Collective operation, double n) {
  const double k = n - 1, part = k / n;
  switch (operation) {
    case Collective::all_reduce:
      return {n, 2 * k, 2 * part, part, 0, 2 * part, part, 4 * k, 2 * k * n, 2 * k, k};
    case Collective::reduce:
      return {1, 2 * k, k, k, 0, 1, 1, 4, 2 * k, k, k};
    case Collective::broadcast:
      return {1, 2 * k, k, 0, 0, 1, 0, 4, 2 * k, k, 0};
    case Collective::all_gather:
      return {n, k, part, 0, 0, part, 0, 2 * k, k * n, k, 0};
    case Collective::reduce_scatter:
      return {n, k, part, part, 0, part, part, 2 * k, k * n, k, k};
    case Collective::gather:
    case Collective::scatter:
      return {n, 2 * k, part, 0, 0, part, 0, n == 2 ? 2 : 2 * k + 1, k * n / 2 + k, k / 2, 0};
    default:
      break;
  }
  return {};
}

// A node hears its two children one after the other; each half of the buffer has a tree of its own.
Flat tree(Collective operation, int ranks) {
  const double k = ranks - 1;
  const bool pair = ranks == 2;
  const double width = pair ? 0.5 : 1;
  const double height = floor_log2(ranks), rooted = floor_log2(ranks - 1) + 1;
  switch (operation) {
    case Collective::all_reduce:
      return {2,         2 * height, 2 * height * width, height * width, pair ? 0 : 2 * height,
              2 * width, width,      pair ? 4.0 : 8.0,   4 * k,          2 * k,
              k};
    case Collective::reduce:
      return {2, 2 * rooted, rooted, rooted, 2 * rooted, 1, 1, pair ? 3.0 : 7.0, 3 * k, k, k};
    case Collective::broadcast:
      return {2, 2 * rooted, rooted, 0, 2 * rooted, 1, 0, pair ? 3.0 : 7.0, 3 * k, k, 0};
    case Collective::barrier:
      return {1, 2 * height, 0, 0, pair ? 0 : 2 * height, 0, 0, pair ? 2.0 : 6.0, 2 * k, 0, 0};
    default:
      break;
  }
  return {};
}

// Everything passes the centre, one frame after another.
Flat star(Collective operation, double n) {
  const double k = n - 1, part = k / n, turns = 2 * (k - 1);
  switch (operation) {
    case Collective::all_reduce:
      return {1, 2, 2 * k, k, turns, k, k, 2 * k, 2 * k, 2 * k, k};
    case Collective::reduce:
      return {1, 2, k, k, turns, k, k, 2 * k, 2 * k, k, k};
    case Collective::broadcast:
      return {1, 2, k, 0, turns, k, 0, 2 * k, 2 * k, k, 0};
    case Collective::all_gather:
      return {n, 2, part + k * part, 0, k + k * k - 2, k * part, 0, k + k * k, k + k * k, k, 0};
    case Collective::reduce_scatter:
      return {n,        2,        part + k * part, k * part,  k + k * k - 2,
              k * part, k * part, k + k * k,       k + k * k, k,
              k};
    case Collective::barrier:
      return {1, 2, 0, 0, turns, 0, 0, 2 * k, 2 * k, 0, 0};
    case Collective::gather:
    case Collective::scatter:
      return {n, 2, part, 0, turns, part, 0, 2 * k, 2 * k, part, 0};
    default:
      break;
  }
  return {};
}

Flat doubling(Collective operation, int ranks) {
  const double n = ranks;
  if (operation == Collective::barrier) {
    const double rounds = ceil_log2(ranks);
    return {1, rounds, 0, 0, 0, 0, 0, 2 * rounds, n * rounds, 0, 0};
  }
  const double exchanges = floor_log2(ranks);
  const double core = std::bit_floor(static_cast<unsigned>(ranks)), extra = n - core;
  const double fold = extra > 0 ? 1 : 0, frames = core * exchanges + 2 * extra;
  return {1,
          exchanges + 2 * fold,
          exchanges + 2 * fold,
          exchanges + fold,
          0,
          exchanges + fold,
          exchanges + fold,
          2 * (exchanges + fold),
          frames,
          frames,
          core * exchanges + extra};
}

Flat chain(Collective operation, double n) {
  const double k = n - 1;
  const bool pair = n == 2;
  switch (operation) {
    case Collective::all_reduce:
      return {1, 2 * k, 2 * k, k, 0, pair ? 1.0 : 2.0, 1, pair ? 2.0 : 4.0, 2 * k, 2 * k, k};
    case Collective::reduce:  // a root in the middle hears the prefix, and then the last rank
      return {1, 2 * k, n, n, 0, pair ? 1.0 : 3.0, pair ? 1.0 : 2.0, pair ? 2.0 : 8.0, n + k, n, n};
    default:  // reduce_scatter: n such chains side by side
      return {n, k,         (k + n) / n, (k + n) / n,     n, (n + 1) / n,
              1, 2 * n + 2, n * n - 2,   (n * n - 2) / n, k};
  }
}

// Ranks 2i and 2i + 1 exchange first. Where a group is odd one rank hears from two: (m-1)/2 slices
// more, m the odd factor of n.
Flat halving(Collective operation, int ranks) {
  const double n = ranks, k = n - 1, hops = ceil_log2(ranks), part = k / n;
  const int odd = ranks >> std::countr_zero(static_cast<unsigned>(ranks));
  const int more = (odd - 1) / 2;
  const double busy = part + more / n, frames = 2 * k + more;
  switch (operation) {
    case Collective::all_reduce:
      return {n,          2 * hops,  2 * busy, busy, 2 * (k - hops), 2 * busy, busy,
              2 * frames, 2 * k * n, 2 * k,    k};
    case Collective::all_gather:
      return {n, hops, busy, 0, k - hops, busy, 0, frames, k * n, k, 0};
    default:  // reduce_scatter
      return {n, hops, busy, busy, k - hops, busy, busy, frames, k * n, k, k};
  }
}

Flat two_shot(Collective operation, double n) {
  const double k = n - 1, part = k / n, turns = k - 1;
  switch (operation) {
    case Collective::all_reduce:
      return {n, 2, 2 * part, part, 2 * turns, 2 * part, part, 4 * k, 2 * k * n, 2 * k, k};
    case Collective::all_gather:
      return {n, 1, part, 0, turns, part, 0, 2 * k, k * n, k, 0};
    case Collective::reduce_scatter:
      return {n, 1, part, part, turns, part, part, 2 * k, k * n, k, k};
    default:  // barrier
      return {1, 1, 0, 0, turns, 0, 0, 2 * k, k * n, 0, 0};
  }
}

// A rank that turns from peer to peer uses its links less evenly than one that hears from a single
// one all the time.
Flat uneven(Flat flat) {
  flat.path_bytes *= turning;
  flat.busy_bytes *= turning;
  return flat;
}

// All frames of a rank leave at once, one for each of the others.
Flat pairwise(double n) {
  const double k = n - 1, part = k / n;
  return {n, 1, part, 0, 2 * (k - 1), part, 0, 2 * k, k * n, k, 0};
}

Flat flat_shape(schedules::Algorithm algorithm, Collective operation, int ranks) {
  switch (algorithm) {
    case schedules::Algorithm::ring:
      return ring(operation, ranks);
    case schedules::Algorithm::tree:
      return tree(operation, ranks);
    case schedules::Algorithm::star:
      return star(operation, ranks);
    case schedules::Algorithm::doubling:
      return doubling(operation, ranks);
    case schedules::Algorithm::chain:
      return chain(operation, ranks);
    case schedules::Algorithm::pairwise:
      return uneven(pairwise(ranks));
    case schedules::Algorithm::halving:
      return uneven(halving(operation, ranks));
    case schedules::Algorithm::two_shot:
    case schedules::Algorithm::two_level:
      return uneven(two_shot(operation, ranks));
    case schedules::Algorithm::direct:
      break;
  }
  return {};
}

Shape with_totals(const Flat& flat) {
  Shape shape;
  shape.slices = flat.slices;
  shape.path_reduce = flat.path_reduce;
  shape.busy_reduce = flat.busy_reduce;
  shape.frames = flat.frames;
  shape.bytes = flat.bytes;
  shape.reduce = flat.reduce;
  return shape;
}

Traffic traffic_of(const Flat& flat) {
  return {flat.hops, flat.path_bytes, flat.path_frames, flat.busy_bytes, flat.busy_frames};
}

// What of a flat algorithm crosses between hosts: hops of the longest path, and bytes of the
// busiest host on that path and in all.
struct Crossing {
  double hops = 0, path_bytes = 0, host_bytes = 0;
};

// Bytes that cross when ranks exchange with the one at distance 1, then 2, 4, ..., half as much
// each time.
double halved_bytes(const Topology& t) {
  const double most = t.ranks_per_host;
  const bool aligned =
      t.ranks == t.hosts * t.ranks_per_host && std::has_single_bit(unsigned(t.ranks_per_host));
  if (aligned) return 1 - 1.0 / t.hosts;
  double bytes = 0, distance = 1;
  const auto hops = static_cast<int>(ceil_log2(t.ranks));
  for (int hop = 0; hop < hops; ++hop, distance *= 2)
    bytes += most / (2 * distance) * std::min(1.0, distance / most);
  return bytes;
}

Crossing crossing(schedules::Algorithm algorithm, Collective operation, const Flat& flat,
                  const Topology& t) {
  const double n = t.ranks, k = n - 1, hosts = t.hosts, most = t.ranks_per_host,
               outside = (n - most) / k;
  const double levels = ceil_log2(t.hosts);
  switch (algorithm) {
    case schedules::Algorithm::ring:  // every slice passes every gap between hosts
      if (flat.slices == 1)
        return {2 * (hosts - 1), flat.path_bytes == 0 ? 0 : hosts - 1, flat.busy_bytes};
      return {std::ceil(flat.hops * hosts / n), flat.path_bytes, flat.busy_bytes};
    case schedules::Algorithm::tree: {  // in-order trees over ranks in host order: only the upper
                                        // levels cross
      const double hops = std::min(flat.hops, 2 * levels);
      return {hops, flat.path_bytes * hops / flat.hops, 2 * flat.busy_bytes};
    }
    case schedules::Algorithm::star:
      return {flat.hops, flat.path_bytes * outside, flat.busy_bytes * outside};
    case schedules::Algorithm::doubling: {  // every rank of a host sends the whole buffer at once
      const bool whole = std::has_single_bit(unsigned(t.ranks));
      const double hops = std::min(flat.hops, levels + (whole ? 0 : 2));
      return {hops, flat.path_bytes == 0 ? 0 : hops * most, flat.busy_bytes == 0 ? 0 : hops * most};
    }
    case schedules::Algorithm::chain: {
      const double part = t.in_rank_order ? (hosts - 1) / k : 1, wide = t.in_rank_order ? 1 : most;
      if (operation != Collective::reduce_scatter)
        return {std::ceil(flat.hops * part), flat.path_bytes * part, flat.busy_bytes * wide};
      // All blocks are summed on the last host, and most go back from there in two parts.
      const double bytes = wide * 2 * (hosts - 1) / hosts;
      return {std::ceil(flat.hops * part), bytes, bytes};
    }
    case schedules::Algorithm::halving: {
      const double ways = operation == Collective::all_reduce ? 2 : 1,
                   bytes = ways * halved_bytes(t) * turning;
      return {std::min(flat.hops, ways * (levels + 1)), bytes, bytes};
    }
    case schedules::Algorithm::two_shot:
    case schedules::Algorithm::pairwise:
    case schedules::Algorithm::two_level: {
      const double bytes = flat.path_bytes * outside * most;
      return {flat.hops, bytes, bytes};
    }
    case schedules::Algorithm::direct:
      break;
  }
  return {};
}

Shape spread(schedules::Algorithm algorithm, Collective operation, const Topology& t) {
  const Flat flat = flat_shape(algorithm, operation, t.ranks);
  const Crossing over = crossing(algorithm, operation, flat, t);
  Shape shape = with_totals(flat);
  shape.host = shape.network = traffic_of(flat);
  const bool direct = algorithm == schedules::Algorithm::star ||
                      algorithm == schedules::Algorithm::two_shot ||
                      algorithm == schedules::Algorithm::pairwise;
  const double outside = static_cast<double>(t.ranks - t.ranks_per_host) / (t.ranks - 1);
  const double part = direct ? outside : flat.hops > 0 ? over.hops / flat.hops : 0;
  shape.network.hops = over.hops;
  shape.network.path_bytes = over.path_bytes;
  shape.network.busy_bytes = over.host_bytes;
  shape.network.path_frames *= part;
  shape.network.busy_frames *= part;
  shape.host.hops -= over.hops;
  shape.host.path_bytes *= 1 - part;
  shape.host.path_frames *= 1 - part;
  shape.host.busy_bytes *= 1 - part;
  shape.host.busy_frames *= 1 - part;
  return shape;
}

// Rails are as many as ranks on the fullest host; the hosts are taken as equally full.
Shape two_level(Collective operation, const Topology& t) {
  const double n = t.ranks, k = n - 1, hosts = t.hosts, rails = t.ranks_per_host;
  const double height = ceil_log2(t.hosts), last = hosts - 1, inside = (rails - 1) / rails;
  const double near = rails > 1 ? 1 : 0;  // hops within a host, each way
  const double blocks = rails > 1 ? n * inside : 0, between = n * last / rails / hosts;
  Shape s;
  switch (operation) {
    case Collective::all_reduce:
      s = {rails * hosts,
           {2 * near, 2 * inside, near * 2 * ((rails - 1) * hosts - 1), 2 * inside,
            4 * (rails - 1) * hosts},
           {2 * last, 2 * last / hosts, 0, 2 * last / hosts, 4 * last},
           inside + last / n,
           inside + last / n,
           2 * (n - hosts) * rails * hosts + 2 * last * rails * hosts,
           2 * k,
           k};
      return s;
    case Collective::all_gather:
    case Collective::reduce_scatter: {
      const bool sums = operation == Collective::reduce_scatter;
      s = {n,
           {near, inside, near * (blocks - 1), inside, 2 * blocks},
           {last, last / hosts, 0, last / hosts, 2 * between},
           sums ? inside + last / n : 0,
           sums ? inside + last / n : 0,
           (n - hosts) * n + last * n,
           k,
           sums ? k : 0};
      return s;
    }
    case Collective::reduce:
    case Collective::broadcast: {
      const bool sums = operation == Collective::reduce;
      s = {rails,
           {3 * near, 2 * inside, near * 4 * (rails - 1), 2 * inside, 4 * rails},
           {last + height, last, 0, 1, 2 + height},
           sums ? inside + last / rails : 0,
           sums ? inside + 1 / rails : 0,
           k * rails + k,
           k,
           sums ? k : 0};
      return s;
    }
    default:  // barrier
      s.host = {2 * near, 0, near * 2 * (rails - 2), 0, 2 * (rails - 1)};
      s.network = {height, 0, 0, 0, 2 * height};
      s.frames = 2 * (n - hosts) + hosts * height;
      return s;
  }
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
  operation = schedules::without_counts(operation);
  Topology t = topology;
  t.hosts = std::clamp(t.hosts, 1, t.ranks);
  // As many ranks as the average at least, and as few as leave one for every other host at most.
  t.ranks_per_host =
      std::clamp(t.ranks_per_host, (t.ranks - 1) / t.hosts + 1, t.ranks - t.hosts + 1);
  const bool rooted = operation == Collective::reduce || operation == Collective::broadcast;
  if (algorithm == schedules::Algorithm::two_level && (t.hosts > 1 || rooted))
    return two_level(operation, t);
  if (t.hosts > 1 && t.ranks_per_host > 1) return spread(algorithm, operation, t);
  const Flat flat = flat_shape(algorithm, operation, t.ranks);
  Shape shape = with_totals(flat);
  (t.hosts > 1 ? shape.network : shape.host) = traffic_of(flat);
  return shape;
}

bool needs_staging(Collective operation) noexcept {
  const base::Extent out = base::traits_of(operation).out;
  return out == base::Extent::on_root || out == base::Extent::own_block;
}

}  // namespace rondo::plan

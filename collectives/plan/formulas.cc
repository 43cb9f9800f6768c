// SPDX-License-Identifier: Apache-2.0
//
// One function for each algorithm and operation: hops and bytes on the longest path, frames and
// bytes of the busiest rank. n: ranks, k = n - 1. The leading terms are those of Thakur,
// Rabenseifner and Gropp (Optimization of collective communication operations in MPICH, 2005) and
// of Sanders, Speck and Traeff (two-tree algorithms, 2009). The counts of frames and the pipelined
// terms are counted in the schedules.
#include "collectives/plan/formulas.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "collectives/plan/tuning.h"
#include "collectives/plan/two_level_formulas.h"
#include "collectives/schedules/algorithms.h"

namespace rondo::plan {

namespace {

using schedules::Algorithm;

double floor_log2(int value) {
  return std::bit_width(static_cast<unsigned>(value)) - 1;
}
double ceil_log2(int value) {
  return std::bit_width(static_cast<unsigned>(value - 1));
}

// Ring.

Flat ring_all_reduce(int ranks) {
  const double n = ranks, k = n - 1, part = k / n;
  return {.slices = n,
          .hops = 2 * k,
          .path_bytes = 2 * part,
          .path_reduce = part,
          .busy_bytes = 2 * part,
          .busy_reduce = part,
          .busy_frames = 4 * k,
          .frames = 2 * k * n,
          .bytes = 2 * k,
          .reduce = k};
}
Flat ring_broadcast(int ranks) {
  const double k = ranks - 1;
  return {.hops = 2 * k,
          .path_bytes = k,
          .busy_bytes = 1,
          .busy_frames = 4,
          .frames = 2 * k,
          .bytes = k};
}
Flat ring_reduce(int ranks) {
  const double k = ranks - 1;
  Flat flat = ring_broadcast(ranks);
  flat.path_reduce = k;
  flat.busy_reduce = 1;
  flat.reduce = k;
  return flat;
}
Flat ring_all_gather(int ranks) {
  const double n = ranks, k = n - 1, part = k / n;
  return {.slices = n,
          .hops = k,
          .path_bytes = part,
          .busy_bytes = part,
          .busy_frames = 2 * k,
          .frames = k * n,
          .bytes = k};
}
// Turns an all-gather into a reduce-scatter: the receiver of each frame also sums it.
Flat summed(Flat flat, int ranks) {
  flat.path_reduce = flat.path_bytes;
  flat.busy_reduce = flat.busy_bytes;
  flat.reduce = ranks - 1;
  return flat;
}
Flat ring_reduce_scatter(int ranks) {
  return summed(ring_all_gather(ranks), ranks);
}
Flat ring_gather(int ranks) {
  const double n = ranks, k = n - 1, part = k / n;
  return {.slices = n,
          .hops = 2 * k,
          .path_bytes = part,
          .busy_bytes = part,
          .busy_frames = ranks == 2 ? 2 : 2 * k + 1,
          .frames = k * n / 2 + k,
          .bytes = k / 2};
}

double share_of_hops(double hops, const Flat& flat) {
  return flat.hops > 0 ? hops / flat.hops : 0;
}
// Slices go round the ring and cross every boundary between hosts.
Crossing ring_crossing(const Flat& flat, const Topology& t) {
  const double n = t.ranks, hosts = t.hosts, hops = std::ceil(flat.hops * hosts / n);
  return {hops, flat.path_bytes, flat.busy_bytes, share_of_hops(hops, flat)};
}
// One slice in a pipeline: the path's bytes are those that cross the boundaries between hosts.
Crossing pipeline_crossing(const Flat& flat, const Topology& t) {
  const double hosts = t.hosts, hops = 2 * (hosts - 1);
  return {hops, hosts - 1, flat.busy_bytes, share_of_hops(hops, flat)};
}

// Tree: each half of the buffer has its own tree. A node receives from its two children one after
// the other.

Flat tree_all_reduce(int ranks) {
  const double k = ranks - 1, height = floor_log2(ranks);
  const bool pair = ranks == 2;
  const double width = pair ? 0.5 : 1;
  return {.slices = 2,
          .hops = 2 * height,
          .path_bytes = 2 * height * width,
          .path_reduce = height * width,
          .path_frames = pair ? 0 : 2 * height,
          .busy_bytes = 2 * width,
          .busy_reduce = width,
          .busy_frames = pair ? 4.0 : 8.0,
          .frames = 4 * k,
          .bytes = 2 * k,
          .reduce = k};
}
Flat tree_broadcast(int ranks) {
  const double k = ranks - 1, rooted = floor_log2(ranks - 1) + 1;
  return {.slices = 2,
          .hops = 2 * rooted,
          .path_bytes = rooted,
          .path_frames = 2 * rooted,
          .busy_bytes = 1,
          .busy_frames = ranks == 2 ? 3.0 : 7.0,
          .frames = 3 * k,
          .bytes = k};
}
Flat tree_reduce(int ranks) {
  Flat flat = tree_broadcast(ranks);
  flat.path_reduce = flat.path_bytes;
  flat.busy_reduce = 1;
  flat.reduce = ranks - 1;
  return flat;
}
Flat tree_barrier(int ranks) {
  const double k = ranks - 1, height = floor_log2(ranks);
  const bool pair = ranks == 2;
  return {.hops = 2 * height,
          .path_frames = pair ? 0 : 2 * height,
          .busy_frames = pair ? 2.0 : 6.0,
          .frames = 2 * k};
}

// The trees are in-order trees over ranks in host order, so only the upper levels cross.
Crossing tree_crossing(const Flat& flat, const Topology& t) {
  const double hops = std::min(flat.hops, 2 * ceil_log2(t.hosts));
  return {hops, flat.path_bytes * hops / flat.hops, 2 * flat.busy_bytes, share_of_hops(hops, flat)};
}

// Star: all frames pass the centre, one after another.

Flat star_barrier(int ranks) {
  const double k = ranks - 1;
  return {.hops = 2, .path_frames = 2 * (k - 1), .busy_frames = 2 * k, .frames = 2 * k};
}
Flat star_broadcast(int ranks) {
  const double k = ranks - 1;
  Flat flat = star_barrier(ranks);
  flat.path_bytes = flat.busy_bytes = flat.bytes = k;
  return flat;
}
Flat star_reduce(int ranks) {
  const double k = ranks - 1;
  Flat flat = star_broadcast(ranks);
  flat.path_reduce = flat.busy_reduce = flat.reduce = k;
  return flat;
}
Flat star_all_reduce(int ranks) {
  const double k = ranks - 1;
  Flat flat = star_reduce(ranks);
  flat.path_bytes = flat.bytes = 2 * k;
  return flat;
}
Flat star_all_gather(int ranks) {
  const double n = ranks, k = n - 1, part = k / n;
  return {.slices = n,
          .hops = 2,
          .path_bytes = part + k * part,
          .path_frames = k + k * k - 2,
          .busy_bytes = k * part,
          .busy_frames = k + k * k,
          .frames = k + k * k,
          .bytes = k};
}
Flat star_reduce_scatter(int ranks) {
  const double n = ranks, k = n - 1, part = k / n;
  Flat flat = star_all_gather(ranks);
  flat.path_reduce = flat.busy_reduce = k * part;
  flat.reduce = k;
  return flat;
}
Flat star_gather(int ranks) {
  const double n = ranks, part = (n - 1) / n;
  Flat flat = star_barrier(ranks);
  flat.slices = n;
  flat.path_bytes = flat.busy_bytes = flat.bytes = part;
  return flat;
}

// The part of a rank's peers that are on other hosts.
double share_outside(const Topology& t) {
  return static_cast<double>(t.ranks - t.ranks_per_host) / (t.ranks - 1);
}
Crossing star_crossing(const Flat& flat, const Topology& t) {
  const double outside = share_outside(t);
  return {flat.hops, flat.path_bytes * outside, flat.busy_bytes * outside, outside};
}

// Recursive doubling.

Flat doubling_all_reduce(int ranks) {
  const double n = ranks, exchanges = floor_log2(ranks);
  const double core = std::bit_floor(static_cast<unsigned>(ranks)), extra = n - core;
  const double fold = extra > 0 ? 1 : 0, frames = core * exchanges + 2 * extra;
  return {.hops = exchanges + 2 * fold,
          .path_bytes = exchanges + 2 * fold,
          .path_reduce = exchanges + fold,
          .busy_bytes = exchanges + fold,
          .busy_reduce = exchanges + fold,
          .busy_frames = 2 * (exchanges + fold),
          .frames = frames,
          .bytes = frames,
          .reduce = core * exchanges + extra};
}
Flat doubling_barrier(int ranks) {
  const double rounds = ceil_log2(ranks);
  return {.hops = rounds, .busy_frames = 2 * rounds, .frames = ranks * rounds};
}

double doubling_hops(const Flat& flat, const Topology& t) {
  const bool whole = std::has_single_bit(static_cast<unsigned>(t.ranks));
  return std::min(flat.hops, ceil_log2(t.hosts) + (whole ? 0 : 2));
}
// All ranks of a host send the whole buffer to other hosts at the same time.
Crossing doubling_crossing(const Flat& flat, const Topology& t) {
  const double hops = doubling_hops(flat, t), bytes = hops * t.ranks_per_host;
  return {hops, bytes, bytes, share_of_hops(hops, flat)};
}
Crossing dissemination_crossing(const Flat& flat, const Topology& t) {
  const double hops = doubling_hops(flat, t);
  return {hops, 0, 0, share_of_hops(hops, flat)};
}

// Chain.

Flat chain_all_reduce(int ranks) {
  const double k = ranks - 1;
  const bool pair = ranks == 2;
  return {.hops = 2 * k,
          .path_bytes = 2 * k,
          .path_reduce = k,
          .busy_bytes = pair ? 1.0 : 2.0,
          .busy_reduce = 1,
          .busy_frames = pair ? 2.0 : 4.0,
          .frames = 2 * k,
          .bytes = 2 * k,
          .reduce = k};
}
// A root in the middle receives the partial sum and then the last rank's value.
Flat chain_reduce(int ranks) {
  const double n = ranks, k = n - 1;
  const bool pair = ranks == 2;
  return {.hops = 2 * k,
          .path_bytes = n,
          .path_reduce = n,
          .busy_bytes = pair ? 1.0 : 3.0,
          .busy_reduce = pair ? 1.0 : 2.0,
          .busy_frames = pair ? 2.0 : 8.0,
          .frames = n + k,
          .bytes = n,
          .reduce = n};
}
// n chains side by side.
Flat chain_reduce_scatter(int ranks) {
  const double n = ranks, k = n - 1;
  return {.slices = n,
          .hops = k,
          .path_bytes = (k + n) / n,
          .path_reduce = (k + n) / n,
          .path_frames = n,
          .busy_bytes = (n + 1) / n,
          .busy_reduce = 1,
          .busy_frames = 2 * n + 2,
          .frames = n * n - 2,
          .bytes = (n * n - 2) / n,
          .reduce = k};
}

double chain_share(const Topology& t) {
  return t.in_rank_order ? (t.hosts - 1.0) / (t.ranks - 1.0) : 1;
}
double chain_width(const Topology& t) {
  return t.in_rank_order ? 1 : t.ranks_per_host;
}
Crossing chain_crossing(const Flat& flat, const Topology& t) {
  const double share = chain_share(t), hops = std::ceil(flat.hops * share);
  return {hops, flat.path_bytes * share, flat.busy_bytes * chain_width(t),
          share_of_hops(hops, flat)};
}
// The last host sums all blocks. Most of them go back from there in two parts: the partial sum and
// the last rank's value.
Crossing chains_crossing(const Flat& flat, const Topology& t) {
  const double hosts = t.hosts, bytes = chain_width(t) * 2 * (hosts - 1) / hosts;
  const double hops = std::ceil(flat.hops * chain_share(t));
  return {hops, bytes, bytes, share_of_hops(hops, flat)};
}

// For algorithms in which a rank goes from peer to peer: it uses its links less evenly than one
// that streams with a single peer.
Flat uneven(Flat flat) {
  flat.path_bytes *= turning;
  flat.busy_bytes *= turning;
  return flat;
}

// Halving: ranks 2i and 2i + 1 exchange first. In a group with an odd number of ranks one rank
// receives from two. That makes (m-1)/2 more slices, where m is the odd factor of n.

Flat even_halving_all_gather(int ranks) {
  const double n = ranks, k = n - 1, hops = ceil_log2(ranks), part = k / n;
  const int odd = ranks >> std::countr_zero(static_cast<unsigned>(ranks));
  const int more = (odd - 1) / 2;
  const double busy = part + more / n;
  return {.slices = n,
          .hops = hops,
          .path_bytes = busy,
          .path_frames = k - hops,
          .busy_bytes = busy,
          .busy_frames = 2 * k + more,
          .frames = k * n,
          .bytes = k};
}
Flat halving_all_gather(int ranks) {
  return uneven(even_halving_all_gather(ranks));
}
Flat halving_reduce_scatter(int ranks) {
  return uneven(summed(even_halving_all_gather(ranks), ranks));
}
// The way there and the way back; only the way there reduces.
Flat twice(const Flat& there) {
  Flat flat = there;
  flat.hops = 2 * there.hops;
  flat.path_bytes = 2 * there.path_bytes;
  flat.path_frames = 2 * there.path_frames;
  flat.busy_bytes = 2 * there.busy_bytes;
  flat.busy_frames = 2 * there.busy_frames;
  flat.frames = 2 * there.frames;
  flat.bytes = 2 * there.bytes;
  return flat;
}
Flat halving_all_reduce(int ranks) {
  return uneven(twice(summed(even_halving_all_gather(ranks), ranks)));
}

// Bytes that cross between hosts when ranks exchange at distance 1, then 2, 4, ... They exchange
// half of the buffer first, then half as much each time.
double halved_bytes(const Topology& t) {
  const double most = t.ranks_per_host;
  const bool aligned = t.ranks == t.hosts * t.ranks_per_host &&
                       std::has_single_bit(static_cast<unsigned>(t.ranks_per_host));
  if (aligned) return 1 - 1.0 / t.hosts;
  double bytes = 0, distance = 1;
  const auto hops = static_cast<int>(ceil_log2(t.ranks));
  for (int hop = 0; hop < hops; ++hop, distance *= 2)
    bytes += most / (2 * distance) * std::min(1.0, distance / most);
  return bytes;
}
Crossing crossing_in_ways(double ways, const Flat& flat, const Topology& t) {
  const double bytes = ways * halved_bytes(t) * turning;
  const double hops = std::min(flat.hops, ways * (ceil_log2(t.hosts) + 1));
  return {hops, bytes, bytes, share_of_hops(hops, flat)};
}
Crossing halving_crossing(const Flat& flat, const Topology& t) {
  return crossing_in_ways(1, flat, t);
}
Crossing halving_and_back_crossing(const Flat& flat, const Topology& t) {
  return crossing_in_ways(2, flat, t);
}

// Two-shot and pairwise.

Flat even_two_shot_all_gather(int ranks) {
  const double n = ranks, k = n - 1, part = k / n;
  return {.slices = n,
          .hops = 1,
          .path_bytes = part,
          .path_frames = k - 1,
          .busy_bytes = part,
          .busy_frames = 2 * k,
          .frames = k * n,
          .bytes = k};
}
Flat two_shot_all_gather(int ranks) {
  return uneven(even_two_shot_all_gather(ranks));
}
Flat two_shot_reduce_scatter(int ranks) {
  return uneven(summed(even_two_shot_all_gather(ranks), ranks));
}
Flat two_shot_all_reduce(int ranks) {
  return uneven(twice(summed(even_two_shot_all_gather(ranks), ranks)));
}
Flat two_shot_barrier(int ranks) {
  const double n = ranks, k = n - 1;
  return {.hops = 1, .path_frames = k - 1, .busy_frames = 2 * k, .frames = k * n};
}
// A rank sends one frame to each other rank, all at once.
Flat pairwise_all_to_all(int ranks) {
  Flat flat = two_shot_all_gather(ranks);
  flat.path_frames *= 2;
  return flat;
}
Crossing all_pairs_crossing(const Flat& flat, const Topology& t) {
  const double outside = share_outside(t), bytes = flat.path_bytes * outside * t.ranks_per_host;
  return {flat.hops, bytes, bytes, outside};
}

constexpr std::array rows{
    CostRow{Algorithm::ring, Collective::all_reduce, ring_all_reduce, ring_crossing},
    CostRow{Algorithm::ring, Collective::reduce, ring_reduce, pipeline_crossing},
    CostRow{Algorithm::ring, Collective::broadcast, ring_broadcast, pipeline_crossing},
    CostRow{Algorithm::ring, Collective::all_gather, ring_all_gather, ring_crossing},
    CostRow{Algorithm::ring, Collective::reduce_scatter, ring_reduce_scatter, ring_crossing},
    CostRow{Algorithm::ring, Collective::gather, ring_gather, ring_crossing},
    CostRow{Algorithm::ring, Collective::scatter, ring_gather, ring_crossing},

    CostRow{Algorithm::tree, Collective::all_reduce, tree_all_reduce, tree_crossing},
    CostRow{Algorithm::tree, Collective::reduce, tree_reduce, tree_crossing},
    CostRow{Algorithm::tree, Collective::broadcast, tree_broadcast, tree_crossing},
    CostRow{Algorithm::tree, Collective::barrier, tree_barrier, tree_crossing},

    CostRow{Algorithm::star, Collective::all_reduce, star_all_reduce, star_crossing},
    CostRow{Algorithm::star, Collective::reduce, star_reduce, star_crossing},
    CostRow{Algorithm::star, Collective::broadcast, star_broadcast, star_crossing},
    CostRow{Algorithm::star, Collective::all_gather, star_all_gather, star_crossing},
    CostRow{Algorithm::star, Collective::reduce_scatter, star_reduce_scatter, star_crossing},
    CostRow{Algorithm::star, Collective::barrier, star_barrier, star_crossing},
    CostRow{Algorithm::star, Collective::gather, star_gather, star_crossing},
    CostRow{Algorithm::star, Collective::scatter, star_gather, star_crossing},

    CostRow{.algorithm = Algorithm::doubling,
            .operation = Collective::all_reduce,
            .flat = doubling_all_reduce,
            .crossing = doubling_crossing,
            .eager_frames = true},
    CostRow{Algorithm::doubling, Collective::barrier, doubling_barrier, dissemination_crossing},

    CostRow{Algorithm::chain, Collective::all_reduce, chain_all_reduce, chain_crossing},
    CostRow{Algorithm::chain, Collective::reduce, chain_reduce, chain_crossing},
    CostRow{Algorithm::chain, Collective::reduce_scatter, chain_reduce_scatter, chains_crossing},

    CostRow{.algorithm = Algorithm::pairwise,
            .operation = Collective::all_to_all,
            .flat = pairwise_all_to_all,
            .crossing = all_pairs_crossing,
            .eager_frames = true},

    CostRow{Algorithm::halving, Collective::all_reduce, halving_all_reduce,
            halving_and_back_crossing},
    CostRow{Algorithm::halving, Collective::all_gather, halving_all_gather, halving_crossing},
    CostRow{Algorithm::halving, Collective::reduce_scatter, halving_reduce_scatter,
            halving_crossing},

    CostRow{.algorithm = Algorithm::two_shot,
            .operation = Collective::all_reduce,
            .flat = two_shot_all_reduce,
            .crossing = all_pairs_crossing,
            .most_ranks = most_two_shot_ranks},
    CostRow{.algorithm = Algorithm::two_shot,
            .operation = Collective::all_gather,
            .flat = two_shot_all_gather,
            .crossing = all_pairs_crossing,
            .most_ranks = most_two_shot_ranks},
    CostRow{.algorithm = Algorithm::two_shot,
            .operation = Collective::reduce_scatter,
            .flat = two_shot_reduce_scatter,
            .crossing = all_pairs_crossing,
            .most_ranks = most_two_shot_ranks},
    CostRow{.algorithm = Algorithm::two_shot,
            .operation = Collective::barrier,
            .flat = two_shot_barrier,
            .crossing = all_pairs_crossing,
            .most_ranks = most_two_shot_ranks},

    CostRow{.algorithm = Algorithm::two_level,
            .operation = Collective::all_reduce,
            .flat = two_shot_all_reduce,
            .levels = two_level_all_reduce,
            .most_frame_bytes = most_two_level_frame},
    CostRow{.algorithm = Algorithm::two_level,
            .operation = Collective::reduce,
            .levels = two_level_reduce,
            .most_frame_bytes = most_two_level_frame},
    CostRow{.algorithm = Algorithm::two_level,
            .operation = Collective::broadcast,
            .levels = two_level_broadcast,
            .most_frame_bytes = most_two_level_frame},
    CostRow{Algorithm::two_level, Collective::all_gather, two_shot_all_gather, nullptr,
            two_level_all_gather},
    CostRow{Algorithm::two_level, Collective::reduce_scatter, two_shot_reduce_scatter, nullptr,
            two_level_reduce_scatter},
    CostRow{Algorithm::two_level, Collective::barrier, two_shot_barrier, nullptr,
            two_level_barrier},
};
static_assert(
    [] {
      if (rows.size() != schedules::implementations.size()) return false;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const CostRow& row = rows[i];
        if (row.algorithm != schedules::implementations[i].algorithm ||
            row.operation != schedules::implementations[i].operation)
          return false;
        if (row.levels == nullptr && (row.flat == nullptr || row.crossing == nullptr)) return false;
      }
      return true;
    }(),
    "every row of schedules/algorithms.h has its formulas, in the same order");

}  // namespace

const CostRow& cost_row(Algorithm algorithm, Collective operation) noexcept {
  return rows[schedules::implementation_index(algorithm, operation)];
}

}  // namespace rondo::plan

// SPDX-License-Identifier: Apache-2.0
//
// n ranks, k = n - 1 others. The leading terms are those of Thakur, Rabenseifner and Gropp (Optimization of collective communication
// operations in MPICH, 2005) and of Sanders, Speck and Traeff (two-tree algorithms, 2009); the counts of frames and the
// pipelined terms are read off the schedules.
#include "collectives/costs.h"

#include <bit>

namespace rondo {

namespace {

double floor_log2(int value) {
  return std::bit_width(static_cast<unsigned>(value)) - 1;
}
double ceil_log2(int value) {
  return std::bit_width(static_cast<unsigned>(value - 1));
}

Shape ring(Collective operation, double n) {
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
    case Collective::barrier:
      break;
  }
  return {};
}

// A node hears its two children one after the other; each half of the buffer has a tree of its own.
Shape tree(Collective operation, int ranks) {
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
    case Collective::all_gather:
    case Collective::reduce_scatter:
      break;
  }
  return {};
}

// Everything passes the centre, one frame after another.
Shape star(Collective operation, double n) {
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
      return {n, 2, part + k * part, k * part, k + k * k - 2, k * part, k * part, k + k * k, k + k * k, k, k};
    case Collective::barrier:
      return {1, 2, 0, 0, turns, 0, 0, 2 * k, 2 * k, 0, 0};
  }
  return {};
}

Shape doubling(Collective operation, int ranks) {
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

Shape chain(Collective operation, double n) {
  const double k = n - 1;
  const bool pair = n == 2;
  switch (operation) {
    case Collective::all_reduce:
      return {1, 2 * k, 2 * k, k, 0, pair ? 1.0 : 2.0, 1, pair ? 2.0 : 4.0, 2 * k, 2 * k, k};
    case Collective::reduce:  // a root in the middle hears the prefix, and then the last rank
      return {1, 2 * k, n, n, 0, pair ? 1.0 : 3.0, pair ? 1.0 : 2.0, pair ? 2.0 : 8.0, n + k, n, n};
    default:  // reduce_scatter: n such chains side by side
      return {n, k, (k + n) / n, (k + n) / n, n, (n + 1) / n, 1, 2 * n + 2, n * n - 2, (n * n - 2) / n, k};
  }
}

}  // namespace

Shape shape_of(Algorithm algorithm, Collective operation, int ranks) {
  if (ranks < 2) return {};
  switch (algorithm) {
    case Algorithm::ring:
      return ring(operation, ranks);
    case Algorithm::tree:
      return tree(operation, ranks);
    case Algorithm::star:
      return star(operation, ranks);
    case Algorithm::doubling:
      return doubling(operation, ranks);
    case Algorithm::chain:
      return chain(operation, ranks);
  }
  return {};
}

bool needs_staging(Collective operation) noexcept {
  return operation == Collective::reduce || operation == Collective::reduce_scatter;
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0

#include "tools/measure/operation.h"

namespace rondo::tools {

double bus_factor(Operation operation, int ranks) {
  const double n = ranks;
  switch (operation.traits().operation) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::barrier:
      return 0;
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::send:
      return 1;
    default:
      return (n - 1) / n;
  }
}

double traffic_of(Operation operation, int ranks, std::uint64_t bytes, bool in_place) {
  const double n = ranks, size = static_cast<double>(bytes);
  const double own = in_place ? 0 : 2 * size;  // a whole output from this rank's input
  if (operation.between_pairs()) return 2 * streams_of(operation, ranks) * size;
  switch (operation.traits().operation) {
    case Collective::all_reduce:
    case Collective::send:
      return 2 * n * size;
    case Collective::reduce:
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return (n + 1) * size;
    case Collective::broadcast:
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::all_to_all:
      return (n - 1) * 2 * size + own;
    case Collective::gather:
    case Collective::scatter:
      return ((n - 1) * 2 * size + own) / n;
    default:
      return 0;
  }
}

}  // namespace rondo::tools

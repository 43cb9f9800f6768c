// SPDX-License-Identifier: Apache-2.0
#include "tools/traffic.h"

namespace rondo::tools {

double traffic_of(Collective operation, int ranks, std::uint64_t bytes, bool allocated, bool in_place) {
  const double n = ranks, size = static_cast<double>(bytes);
  const double others = (n - 1) / n;  // share of a buffer that belongs to the other ranks
  // In place, all_to_all writes over what others still have to read, so it goes through slots.
  const bool through_slots = !allocated || (operation == Collective::all_to_all && in_place);
  const double fill = through_slots ? 2 * size : 0;  // a whole input into a slot
  const double own = in_place ? 0 : 2 * size;        // a whole output from this rank's input
  const double combine = (n + 1) * size;             // every element from n inputs into one place
  switch (operation) {
    case Collective::all_reduce:
      if (!through_slots) return 2 * n * size;
      return n * others * fill + combine + size + n * others * 2 * size;
    case Collective::reduce:
      return n * others * fill + combine + others * fill;
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return n * others * fill + combine;
    case Collective::broadcast:
    case Collective::all_gather:
    case Collective::all_gather_v:
      return fill + (n - 1) * 2 * size + own;
    case Collective::gather:
    case Collective::scatter:
      return others * fill + others * 2 * size + own / n;
    case Collective::all_to_all:
      return n * others * fill + (n - 1) * 2 * size + own;
    default:
      return 0;
  }
}

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/symmetry.h"

#include <algorithm>

#include "collectives/schedules/call.h"
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

bool is_shifted(const Schedule& a, const Schedule& b, int shift, int size) {
  if (a.slices != b.slices || a.rounds != b.rounds || a.steps.size() != b.steps.size())
    return false;
  constexpr std::uint32_t unknown = ~0u;
  std::vector<std::uint32_t> there(a.slices + 1, unknown), back(a.slices + 1, unknown);
  there[a.slices] = back[a.slices] = a.slices;
  const auto moved = [&](int rank) { return rank == no_rank ? no_rank : wrap(rank + shift, size); };
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const Step &x = a.steps[i], &y = b.steps[i];
    if (moved(x.from) != y.from || moved(x.to) != y.to || x.reduce != y.reduce ||
        x.keep != y.keep || x.round != y.round)
      return false;
    if (there[x.slice] == unknown && back[y.slice] == unknown) {
      there[x.slice] = y.slice;
      back[y.slice] = x.slice;
    }
    if (there[x.slice] != y.slice || back[y.slice] != x.slice) return false;
  }
  return true;
}

bool is_periodic(Algorithm algorithm, Collective operation, const Hosts& hosts) {
  const int size = hosts.ranks(), period = hosts.most_on_a_host();
  if (has_root(operation) || !hosts.in_rank_order() || period * hosts.count() != size) return false;
  const int last = size - period, middle = hosts.count() / 2 * period;
  for (const int place : {0, period / 2, period - 1}) {
    const Schedule first = make_schedule(algorithm, operation, place, size, 0, hosts);
    for (const int shift : {std::min(period, last), middle, last})
      if (!is_shifted(first, make_schedule(algorithm, operation, place + shift, size, 0, hosts),
                      shift, size))
        return false;
  }
  return true;
}

}  // namespace rondo::schedules

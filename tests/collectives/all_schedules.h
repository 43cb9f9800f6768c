// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/schedule.h"

namespace rondo {

inline std::vector<Schedule> all_schedules(Algorithm algorithm, Collective operation, int size,
                                           int root = 0) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank)
    schedules.push_back(make_schedule(algorithm, operation, rank, size, root));
  return schedules;
}

// Calls function(algorithm, operation) for every pair that exists.
template <class Function>
void for_each_pair(Function function) {
  for (int a = 0; a < algorithm_count; ++a)
    for (int o = 0; o < collective_count; ++o)
      if (supports(static_cast<Algorithm>(a), static_cast<Collective>(o)))
        function(static_cast<Algorithm>(a), static_cast<Collective>(o));
}

inline bool has_root(Collective operation) {
  return operation == Collective::reduce || operation == Collective::broadcast;
}

}  // namespace rondo

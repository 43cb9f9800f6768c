// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/schedules/call.h"
#include "collectives/schedules/schedule.h"

namespace rondo {

inline std::vector<schedules::Schedule> all_schedules(schedules::Algorithm algorithm,
                                                      Collective operation, int size, int root = 0,
                                                      const schedules::Hosts& hosts = {}) {
  std::vector<schedules::Schedule> schedules;
  for (int rank = 0; rank < size; ++rank)
    schedules.push_back(schedules::make_schedule(algorithm, operation, rank, size, root, hosts));
  return schedules;
}

// Ways to put `size` ranks on hosts: one host, even, uneven, in turn, irregular, one rank on each.
inline std::vector<schedules::Hosts> several_hosts(int size) {
  std::vector<schedules::Hosts> all;
  std::vector<int> host_of_rank(static_cast<std::size_t>(size));
  const auto add = [&](auto host) {
    for (int rank = 0; rank < size; ++rank)
      host_of_rank[static_cast<std::size_t>(rank)] = host(rank);
    all.push_back(schedules::Hosts(host_of_rank));
  };
  const int half = (size + 1) / 2;
  add([](int) { return 0; });
  add([&](int rank) { return rank / half; });
  add([](int rank) { return rank / 4; });
  add([](int rank) { return rank < 3 ? 0 : 1 + rank / 5; });
  add([](int rank) { return rank % 3; });
  add([](int rank) { return rank * rank % 7 / 2; });
  add([](int rank) { return rank; });
  return all;
}

// Calls function(algorithm, operation) for every pair that exists.
template <class Function>
void for_each_pair(Function function) {
  for (int a = 0; a < schedules::algorithm_count; ++a)
    for (int o = 0; o < collective_count; ++o)
      if (schedules::supports(static_cast<schedules::Algorithm>(a), static_cast<Collective>(o)))
        function(static_cast<schedules::Algorithm>(a), static_cast<Collective>(o));
}

}  // namespace rondo

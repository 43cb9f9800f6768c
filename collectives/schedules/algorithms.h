// SPDX-License-Identifier: Apache-2.0
//
// The table of algorithms. An algorithm for an operation has a function in schedules.h, a row here,
// and its formula at the same place in plan/formulas.cc. A new algorithm also needs an enumerator
// (schedule.h) and a row in `algorithms`.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "collectives/schedules/schedule.h"
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

struct AlgorithmTraits {
  Algorithm algorithm = Algorithm::direct;
  std::string_view name = {};
  // Neighbours matter, so make_schedule takes the ranks host by host, whatever their numbers.
  bool host_by_host = false;
};

// In the order of the enum.
inline constexpr std::array<AlgorithmTraits, algorithm_count> algorithms{{
    {.algorithm = Algorithm::ring, .name = "ring", .host_by_host = true},
    {.algorithm = Algorithm::tree, .name = "tree", .host_by_host = true},
    {.algorithm = Algorithm::star, .name = "star"},
    {.algorithm = Algorithm::doubling, .name = "doubling", .host_by_host = true},
    {.algorithm = Algorithm::chain, .name = "chain"},
    {.algorithm = Algorithm::pairwise, .name = "pairwise"},
    {.algorithm = Algorithm::halving, .name = "halving", .host_by_host = true},
    {.algorithm = Algorithm::two_shot, .name = "two_shot"},
    {.algorithm = Algorithm::two_level, .name = "two_level"},
    {.algorithm = Algorithm::direct, .name = "direct"},
}};
static_assert([] {
  for (std::size_t i = 0; i < algorithms.size(); ++i)
    if (static_cast<std::size_t>(algorithms[i].algorithm) != i || algorithms[i].name.empty())
      return false;
  return true;
}());

// All that a function that makes a schedule may need. build() passes the ones that it takes.
struct BuildArguments {
  int rank = 0, size = 2, root = 0;
  const Hosts& hosts;
};

template <auto Function>
Schedule build(const BuildArguments& a) {
  using Type = decltype(Function);
  if constexpr (std::is_invocable_v<Type, int, int>) {
    return Function(a.rank, a.size);
  } else if constexpr (std::is_invocable_v<Type, int, int, int>) {
    return Function(a.rank, a.size, a.root);
  } else if constexpr (std::is_invocable_v<Type, int, int, const Hosts&>) {
    return Function(a.rank, a.size, a.hosts);
  } else {
    return Function(a.rank, a.size, a.root, a.hosts);
  }
}

struct Implementation {
  Algorithm algorithm = Algorithm::direct;
  Collective operation = Collective::barrier;
  Schedule (*build)(const BuildArguments&) = nullptr;
  // Sums in rank order, so the bits of the result do not depend on the root, the hosts or the plan.
  bool in_rank_order = false;
};

// Only operations without counts by rank; the others use the rows of without_counts().
inline constexpr std::array implementations{
    Implementation{Algorithm::ring, Collective::all_reduce, build<ring_all_reduce>},
    Implementation{Algorithm::ring, Collective::reduce, build<ring_reduce>},
    Implementation{Algorithm::ring, Collective::broadcast, build<ring_broadcast>},
    Implementation{Algorithm::ring, Collective::all_gather, build<ring_all_gather>},
    Implementation{Algorithm::ring, Collective::reduce_scatter, build<ring_reduce_scatter>},
    Implementation{Algorithm::ring, Collective::gather, build<ring_gather>},
    Implementation{Algorithm::ring, Collective::scatter, build<ring_scatter>},

    Implementation{Algorithm::tree, Collective::all_reduce, build<tree_all_reduce>},
    Implementation{Algorithm::tree, Collective::reduce, build<tree_reduce>},
    Implementation{Algorithm::tree, Collective::broadcast, build<tree_broadcast>},
    Implementation{Algorithm::tree, Collective::barrier, build<tree_barrier>},

    Implementation{.algorithm = Algorithm::star,
                   .operation = Collective::all_reduce,
                   .build = build<star_all_reduce>,
                   .in_rank_order = true},
    Implementation{Algorithm::star, Collective::reduce, build<star_reduce>},
    Implementation{Algorithm::star, Collective::broadcast, build<star_broadcast>},
    Implementation{Algorithm::star, Collective::all_gather, build<star_all_gather>},
    Implementation{Algorithm::star, Collective::reduce_scatter, build<star_reduce_scatter>},
    Implementation{Algorithm::star, Collective::barrier, build<star_barrier>},
    Implementation{Algorithm::star, Collective::gather, build<star_gather>},
    Implementation{Algorithm::star, Collective::scatter, build<star_scatter>},

    Implementation{Algorithm::doubling, Collective::all_reduce, build<doubling_all_reduce>},
    Implementation{Algorithm::doubling, Collective::barrier, build<doubling_barrier>},

    Implementation{.algorithm = Algorithm::chain,
                   .operation = Collective::all_reduce,
                   .build = build<chain_all_reduce>,
                   .in_rank_order = true},
    Implementation{.algorithm = Algorithm::chain,
                   .operation = Collective::reduce,
                   .build = build<chain_reduce>,
                   .in_rank_order = true},
    Implementation{.algorithm = Algorithm::chain,
                   .operation = Collective::reduce_scatter,
                   .build = build<chain_reduce_scatter>,
                   .in_rank_order = true},

    Implementation{Algorithm::pairwise, Collective::all_to_all, build<pairwise_all_to_all>},

    Implementation{Algorithm::halving, Collective::all_reduce, build<halving_all_reduce>},
    Implementation{Algorithm::halving, Collective::all_gather, build<halving_all_gather>},
    Implementation{Algorithm::halving, Collective::reduce_scatter, build<halving_reduce_scatter>},

    Implementation{Algorithm::two_shot, Collective::all_reduce, build<two_shot_all_reduce>},
    Implementation{Algorithm::two_shot, Collective::all_gather, build<two_shot_all_gather>},
    Implementation{Algorithm::two_shot, Collective::reduce_scatter, build<two_shot_reduce_scatter>},
    Implementation{Algorithm::two_shot, Collective::barrier, build<two_shot_barrier>},

    Implementation{Algorithm::two_level, Collective::all_reduce, build<two_level_all_reduce>},
    Implementation{Algorithm::two_level, Collective::reduce, build<two_level_reduce>},
    Implementation{Algorithm::two_level, Collective::broadcast, build<two_level_broadcast>},
    Implementation{Algorithm::two_level, Collective::all_gather, build<two_level_all_gather>},
    Implementation{Algorithm::two_level, Collective::reduce_scatter,
                   build<two_level_reduce_scatter>},
    Implementation{Algorithm::two_level, Collective::barrier, build<two_level_barrier>},
};

inline constexpr std::size_t no_implementation = implementations.size();

// The place of the row in `implementations`, or no_implementation. Values outside the enums are
// allowed.
constexpr std::size_t implementation_index(Algorithm algorithm, Collective operation) noexcept {
  constexpr auto places = [] {
    std::array<std::array<std::uint8_t, collective_count + 1>, algorithm_count> made{};
    for (auto& row : made) row.fill(static_cast<std::uint8_t>(no_implementation));
    for (std::size_t i = 0; i < implementations.size(); ++i)
      made[static_cast<std::size_t>(implementations[i].algorithm)]
          [static_cast<std::size_t>(implementations[i].operation)] = static_cast<std::uint8_t>(i);
    return made;
  }();
  const auto row = static_cast<std::size_t>(algorithm);
  if (row >= places.size()) return no_implementation;
  return places[row][static_cast<std::size_t>(without_counts(operation))];
}

}  // namespace rondo::schedules

// SPDX-License-Identifier: Apache-2.0
#include "collectives/planner.h"

#include <algorithm>

#include <rondo/error.h>

namespace rondo {

namespace {

constexpr std::size_t frame_bytes = std::size_t{256} << 10;
constexpr int default_depth = 4;

std::uint64_t slices_of(Algorithm algorithm, Collective operation, int ranks) {
  return make_schedule(algorithm, operation, 0, ranks, 0).slices;
}

Plan make_plan(Algorithm algorithm, Collective operation, std::size_t bytes, const Topology& topology,
               const PlanOptions& options) {
  Plan plan{.algorithm = algorithm};
  plan.depth = options.depth > 0 ? options.depth : default_depth;
  const std::size_t most =
      std::max<std::size_t>(1, options.staging_bytes / static_cast<std::size_t>(plan.depth + 2));
  plan.segment_bytes = options.segment_bytes != 0
                           ? options.segment_bytes
                           : frame_bytes * slices_of(algorithm, operation, topology.ranks);
  plan.segment_bytes = std::min({plan.segment_bytes, most, std::max<std::size_t>(bytes, 1)});
  return plan;
}

}  // namespace

Plan choose_plan(Collective operation, std::size_t bytes, const Topology& topology,
                 const CostConstants& constants, const PlanOptions& options) {
  return list_plans(operation, bytes, topology, constants, options).front();
}

std::vector<Plan> list_plans(Collective operation, std::size_t bytes, const Topology& topology,
                             const CostConstants&, const PlanOptions& options) {
  std::vector<Plan> plans;
  const auto add = [&](Algorithm algorithm) {
    if (supports(algorithm, operation) && (!options.algorithm || *options.algorithm == algorithm))
      plans.push_back(make_plan(algorithm, operation, bytes, topology, options));
  };
  if (options.reproducible) add(Algorithm::chain);
  if (bytes <= 65536) add(Algorithm::doubling);
  add(Algorithm::ring);
  add(Algorithm::tree);
  add(Algorithm::star);
  if (bytes > 65536) add(Algorithm::doubling);
  if (!options.reproducible) add(Algorithm::chain);
  if (plans.empty()) throw Error(Errc::unsupported, "no such algorithm for this operation");
  return plans;
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// The cost formulas of two-level algorithms, for any topology with at least two ranks. There are as
// many rails as ranks on the fullest host. All hosts count as equally full.
#pragma once

#include "collectives/plan/costs.h"

namespace rondo::plan {

Shape two_level_all_reduce(const Topology& topology);
Shape two_level_all_gather(const Topology& topology);
Shape two_level_reduce_scatter(const Topology& topology);
Shape two_level_broadcast(const Topology& topology);
Shape two_level_reduce(const Topology& topology);
Shape two_level_barrier(const Topology& topology);

}  // namespace rondo::plan

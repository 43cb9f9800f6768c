// SPDX-License-Identifier: Apache-2.0
//
// What the links cost, measured while a communicator connects: rank 0 sends frames to one rank of
// its own host and to one of another, over the links that operations will use, before there is an
// engine. Everybody then uses rank 0's figures.
#pragma once

#include <vector>

#include "base/clock.h"
#include "collectives/plan/planner.h"
#include "collectives/schedules/hosts.h"
#include "transports/transport.h"

namespace rondo::lib {

struct MeasurePlan {
  int same_host = schedules::no_rank;  // partners of rank 0; no_rank: nobody to measure with
  int other_host = schedules::no_rank;
};
// The lowest other rank of rank 0's host and the lowest of another one. Where ranks outnumber the
// cores of a host times of links inside it mean nothing: they are not measured.
MeasurePlan plan_measurement(const schedules::Hosts& hosts, int ranks, bool crowded);

// On rank 0: measures and returns the constants, those of `otherwise` where there is no partner.
// Bounded: about 1.6 MiB each way, and where that would take long far less.
plan::CostConstants measure_links(const MeasurePlan& plan,
                                  const std::vector<transports::Transport*>& routes,
                                  const plan::CostConstants& otherwise, base::TimePoint until);
// On a partner: answers until rank 0 is through.
// Both throw Error: the link has broken, or time is up.
void answer_measurement(const std::vector<transports::Transport*>& routes, base::TimePoint until);

// Combining two sources of f32, out of the cache.
double measure_reduction();

}  // namespace rondo::lib

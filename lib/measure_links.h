// SPDX-License-Identifier: Apache-2.0
//
// Measures what the links cost while a communicator connects, before there is an engine. Rank 0
// sends frames to one rank of its own host and to one of another host, over the links that
// operations will use. All ranks then use rank 0's figures.
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
// Chooses the lowest other rank of rank 0's host and the lowest rank of another host. If a host has
// more ranks than cores (`crowded`), times of links inside it mean nothing: they are not measured.
MeasurePlan plan_measurement(const schedules::Hosts& hosts, int ranks, bool crowded);

// On rank 0: measures and returns the constants, with those of `otherwise` for links without a
// partner. Sends about 1.6 MiB to each partner, and far less over a slow link. Throws Error if the
// link breaks or time is up.
PlanConstants measure_links(const MeasurePlan& plan,
                            const std::vector<transports::Transport*>& routes,
                            const PlanConstants& otherwise, base::TimePoint until);
// On a partner: answers until rank 0 ends the measurement. Throws like measure_links().
void answer_measurement(const std::vector<transports::Transport*>& routes, base::TimePoint until);

// Returns the seconds for each byte of the sum of two f32 sources of 1 MiB.
double measure_reduction();

}  // namespace rondo::lib

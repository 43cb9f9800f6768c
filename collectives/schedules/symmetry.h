// SPDX-License-Identifier: Apache-2.0
//
// Whether hosts repeat each other's schedules, so that the simulator may run one in place of all.
// Pure functions.
#pragma once

#include "collectives/schedules/schedule.h"

namespace rondo::schedules {

// Whether b equals a when `shift` is added to every peer, modulo size. Slices may be renamed one to
// one; all else must be the same.
bool is_shifted(const Schedule& a, const Schedule& b, int shift, int size);

// Whether every host's schedules are those of the first host, shifted. False with a root, and
// unless the ranks are in host order with equally many on each host. Compares three ranks of the
// first host with those of the second, middle and last host.
bool is_periodic(Algorithm algorithm, Collective operation, const Hosts& hosts);

}  // namespace rondo::schedules

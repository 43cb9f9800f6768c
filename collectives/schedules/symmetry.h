// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/schedules/schedule.h"

namespace rondo::schedules {

// Whether b is a, `shift` ranks further on: peers shifted modulo size, slices renamed one to one,
// all else the same.
bool is_shifted(const Schedule& a, const Schedule& b, int shift, int size);

// Whether all hosts, equally many ranks in order on each, do the same but for a shift; tried on
// some ranks of the first, second, middle and last host. With a root they never do.
bool is_periodic(Algorithm algorithm, Collective operation, const Hosts& hosts);

}  // namespace rondo::schedules

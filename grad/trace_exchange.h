// SPDX-License-Identifier: Apache-2.0
//
// What ranks tell rank 0 of their traces, with times of its clock.
#pragma once

#include <functional>

#include "grad/trace.h"

namespace rondo::grad {

// Collective. On rank 0 calls take(rank, trace) for each rank in turn. Throws Error: what
// operations throw; (corrupt) on every rank where one claims more than can be kept.
void exchange_traces(Communicator& communicator, const RankTrace& mine,
                     const std::function<void(int, const RankTrace&)>& take);

}  // namespace rondo::grad

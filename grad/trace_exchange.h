// SPDX-License-Identifier: Apache-2.0
//
// Sends the traces of all ranks to rank 0, with times of rank 0's clock.
#pragma once

#include <functional>

#include "grad/trace.h"

namespace rondo::grad {

// Collective. On rank 0 calls take(rank, trace) for each rank in turn. Throws Error: what
// operations throw; (corrupt) on every rank if one announces more than can be kept.
void exchange_traces(Communicator& communicator, const RankTrace& mine,
                     const std::function<void(int, const RankTrace&)>& take);

}  // namespace rondo::grad

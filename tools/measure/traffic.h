// SPDX-License-Identifier: Apache-2.0
//
// How many bytes an operation has to move: a formula for each.
#pragma once

#include <cstdint>

#include "tools/measure/operation.h"

namespace rondo::tools {

// Bytes that all ranks together must load and store in an operation over shared memory, whatever
// the algorithm. A copy is loaded once for each receiver, the input of a reduction once, and each
// output is stored once. What an algorithm moves beyond that, into slots and out of them, does not
// count. For messages between pairs it is that of one message in each stream (role.h). `bytes` is
// the size of the larger buffer. Returns 0 for a barrier.
double traffic_of(Operation operation, int ranks, std::uint64_t bytes, bool in_place);

// Bus bandwidth over algorithm bandwidth: what crosses the busiest link of an optimal algorithm, as
// nccl-tests counts it.
double bus_factor(Operation operation, int ranks);

}  // namespace rondo::tools

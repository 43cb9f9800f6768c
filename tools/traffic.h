// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/types.h>

#include <cstdint>

namespace rondo::tools {

// Bytes that all ranks together at least load and store in an operation over shared memory,
// whatever the algorithm: each input once for each receiver, each output once. What an algorithm
// moves beyond that, into slots and out of them, does not count. `bytes` is the size of the larger
// buffer. 0 for a barrier.
double traffic_of(Collective operation, int ranks, std::uint64_t bytes, bool in_place);

}  // namespace rondo::tools

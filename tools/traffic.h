// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/types.h>

#include <cstdint>

namespace rondo::tools {

// Bytes that all ranks together load and store at least in an operation over memory that they share, whatever the algorithm: each input
// once by whom it goes to, each output once. What an algorithm moves beyond that, into slots and out of them, is its own affair and not
// counted. `bytes` is the size of the larger buffer. 0 for a barrier.
double traffic_of(Collective operation, int ranks, std::uint64_t bytes, bool in_place);

}  // namespace rondo::tools

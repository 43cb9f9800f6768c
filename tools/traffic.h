// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/types.h>

#include <cstdint>

namespace rondo::tools {

// Bytes that all ranks together load and store in an operation of the direct algorithm, by the passes that docs/direct.md describes: those of
// user's buffers and those of slots alike; what a rank has just stored and stores elsewhere is not loaded again. `bytes` is the size of the
// larger buffer, `allocated` says that buffers come from Communicator::allocate. 0 for a barrier.
double traffic_of(Collective operation, int ranks, std::uint64_t bytes, bool allocated, bool in_place);

}  // namespace rondo::tools

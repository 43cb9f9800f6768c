// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/bench/session.h"

namespace rondo::tools {

// Measures the links between all hosts, or all ranks, on one rank of them. Returns the exit status,
// the same on all ranks. Throws UsageError on all ranks when there is no pair. A lost rank ends it
// with an exception.
int run_pairs(Session& session, const PairsOptions& options);

}  // namespace rondo::tools

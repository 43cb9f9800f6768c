// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/bench/options.h"
#include "tools/bench/session.h"

namespace rondo::tools {

// Measures all operations of the options, on one rank of them. Returns the exit status, the same
// on all ranks unless rank 0 cannot write. A lost rank ends it with an exception.
int run_bench(Session& session);

}  // namespace rondo::tools

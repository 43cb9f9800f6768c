// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/bench/session.h"

namespace rondo::tools {

// Measures for as long as the options say, interval after interval, one row in each. Rows take
// turns. Ends with a summary: of all times, of what changed, and of what was wrong. Returns the
// exit status, the same on all ranks unless rank 0 cannot write. A lost rank ends it with an
// exception, after the summary of what was measured.
int run_soak(Session& session);

}  // namespace rondo::tools

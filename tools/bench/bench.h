// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tools/bench/session.h"
#include "tools/measure/row.h"

namespace rondo::tools {

// Measures all operations of the options, on one rank of them. Returns the exit status, the same
// on all ranks unless rank 0 cannot write. A lost rank ends it with an exception.
int run_bench(Session& session);

// Lists what a row must not have: wrong elements, and figures beyond --min-bandwidth and
// --max-latency. A row without bytes has no bandwidth. All ranks find the same.
std::vector<std::string> faults_of(const Row& row, const BenchOptions& options);

// Measures for as long as the options say, interval after interval, one row in each. Rows take
// turns. Ends with a summary: of all times, of what changed, and of what was wrong. Returns the
// exit status, the same on all ranks unless rank 0 cannot write. A lost rank ends it with an
// exception, after the summary of what was measured.
int run_soak(Session& session);

}  // namespace rondo::tools

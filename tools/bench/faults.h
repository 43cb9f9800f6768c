// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tools/bench/options.h"
#include "tools/measure/row.h"

namespace rondo::tools {

// What a row has that it must not have: wrong elements, and figures beyond --min-bandwidth and
// --max-latency. A row without bytes has no bandwidth. All ranks find the same.
std::vector<std::string> faults_of(const Row& row, const BenchOptions& options);

}  // namespace rondo::tools

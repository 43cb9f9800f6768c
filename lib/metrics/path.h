// SPDX-License-Identifier: Apache-2.0
//
// Where a rank writes its metrics. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace rondo::metrics {

// Returns the file of a rank: in the pattern %r becomes the rank, %p the process, %h the name of
// the host and %% a percent sign. Without %r and %p the rank is put before the last dot of the
// name, so that ranks of one host do not write one file: "job.prom" becomes "job.3.prom". Throws
// Error(invalid_argument), which names the variable, the pattern and what to do, if the pattern
// cannot be read or the folder does not exist.
std::string path_of(std::string_view pattern, int rank);

}  // namespace rondo::metrics

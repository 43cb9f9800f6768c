// SPDX-License-Identifier: Apache-2.0
//
// Where a rank writes its metrics, and under which labels. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rondo::metrics {

// Returns the file of a rank: in the pattern %r becomes the rank, %p the process, %h the name of
// the host and %% a percent sign. Without %r and %p the rank is put before the last dot of the
// name, so that ranks of one host do not write one file: "job.prom" becomes "job.3.prom". Throws
// Error(invalid_argument), which names the variable, the pattern and what to do, if the pattern
// cannot be read or the folder does not exist.
std::string path_of(std::string_view pattern, int rank);

// Returns the labels that every sample of a file gets, as text: "run=\"train\",team=\"vision\"".
// labels: "name=value" each. If `run` is not among them, it is the name of the file without .prom,
// %r, %p and %h. If the name has %p, or nothing is left of it, two runs would get the same, so the
// job's number is added. Throws Error(invalid_argument) for a name that Prometheus or Rondo does
// not allow.
std::string labels_of(std::span<const std::string> labels, std::string_view pattern,
                      std::uint64_t job);

}  // namespace rondo::metrics

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/trace/dump.h"

namespace rondo::tools {

// Something that `rondo trace` has to say. `text` is a sentence for people.
struct TraceFinding {
  std::string kind;
  std::vector<int> ranks;
  std::string text;
  std::string lane;  // "": of no lane
  std::optional<std::uint64_t> number;
};
using TraceFindings = std::vector<TraceFinding>;

// Reads the dumps of one job, one for each rank, by rank: that of its failure, else the newest.
// paths: files, or folders that hold them. Without a path it takes the folder to which the recorder
// writes. Of a folder of jobs it takes the one that changed last. Adds what is wrong with files to
// `findings`. Throws UsageError when a named file cannot be read, when there is no dump, and when
// there are dumps of two jobs.
std::vector<Dump> read_dumps(std::vector<std::string> paths, TraceFindings& findings);

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
//
// Records for tests.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace rondo::tools {

// A row of all_reduce on two ranks. Its p99 is 2 above its p90, its max 4 above.
inline std::string row_text(unsigned bytes, double p50, double min, double p90,
                            const std::string& more = "") {
  return fmt::format(
      R"({{"operation": "all_reduce", "transport": "shm", "ranks": 2, "bytes": {}, "count": 1,
      "type": "f32", "op": "sum", "root": -1, "in_place": false, "algorithm": "ring",
      "agg_iters": 1, "iterations": 20, "mean_us": {}, "min_us": {}, "p50_us": {}, "p90_us": {},
      "p99_us": {}, "max_us": {}, "algbw": {}, "busbw": {}, "wrong": 0, "ceiling": 0,
      "ceiling_of": "none", "ceiling_percent": 0, "rank_p50_us": [1, 1]{}}})",
      bytes, p50, min, p50, p90, p90 + 2, p90 + 4, bytes / p50 / 1e3, bytes / p50 / 1e3, more);
}

inline std::string record_text(const std::vector<std::string>& rows,
                               const std::string& kind = "bench", const std::string& tail = "") {
  return fmt::format(
      R"({{"version": 1, "kind": "{}", "rondo": "0.1.0", "time": "2026-11-27T14:03:03Z",
      "command": ["rondo", "bench"], "operations": ["all_reduce"], "transport": "shm", "ranks": 2,
      "binding": "core", "processors": "0", "checked": true, "fresh": true, "allocated": false,
      "hosts": [{{"name": "one", "ranks": [0, 1], "kernel": "Linux", "processor": "AMD", "cores": 2,
      "memory_bytes": 1024, "interfaces": []}}], "environment": {{}}, "results": [{}],
      {}"complete": true}}
)",
      kind, fmt::join(rows, ","), tail);
}

}  // namespace rondo::tools

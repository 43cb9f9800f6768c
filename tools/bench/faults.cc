// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/faults.h"

#include <fmt/format.h>

#include "tools/shared/text.h"

namespace rondo::tools {

std::vector<std::string> faults_of(const Row& row, const BenchOptions& options) {
  std::vector<std::string> faults;
  if (row.wrong > 0) faults.push_back(fmt::format("{} wrong elements", row.wrong));
  const bool bounded = options.min_bandwidth && row.bytes > 0 && row.operation.has_bandwidth();
  if (bounded && row.busbw < *options.min_bandwidth)
    faults.push_back(fmt::format("{:.4g} GB/s bus bandwidth, below --min-bandwidth {:.4g}",
                                 row.busbw, *options.min_bandwidth));
  const double p50 = (row.latency ? *row.latency : row.time).p50_us;
  if (options.max_latency && row.operation.has_latency() && p50 > *options.max_latency * 1e6)
    faults.push_back(fmt::format("p50 of {}, above --max-latency {}", format_seconds(p50 / 1e6),
                                 format_seconds(*options.max_latency)));
  return faults;
}

}  // namespace rondo::tools

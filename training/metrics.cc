// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include <rondo/metrics.h>

namespace rondo {

void reduce_metrics(Communicator& communicator, std::span<WeightedMean> metrics) {
  std::vector<double> values;
  values.reserve(2 * metrics.size());
  for (const WeightedMean& each : metrics) {
    // A rank may have computed a mean over no samples as 0/0.
    const bool nothing = each.weight == 0 && !std::isfinite(each.sum);
    values.push_back(nothing ? 0 : each.sum);
    values.push_back(each.weight);
  }
  const Buffer buffer = buffer_of(std::span(values));
  const OpOptions options{.priority = Priority::urgent, .tag = "reduce_metrics"};
  communicator.all_reduce(buffer, buffer, ReduceOp::sum, options).wait();
  for (std::size_t i = 0; i < metrics.size(); ++i) metrics[i] = {values[2 * i], values[2 * i + 1]};
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Buckets start in the order in which gradients become ready: rank 0 sends the order that it has
// seen, once. Gradients do not move.
#include <fmt/format.h>

#include <utility>

#include "grad/state.h"

namespace rondo {

// A rank 0 that has seen nothing, because it had no data, tells in the next step.
void GradientBuckets::State::agree_on_order() {
  if (!order_wanted_) return;
  std::vector<std::uint64_t> told{observed_.size()};
  std::vector<bool> seen(parameters_.size());
  for (const std::size_t parameter : observed_) {
    told.push_back(parameter);
    seen[parameter] = true;
  }
  for (const std::size_t parameter : layout_.order)
    if (!seen[parameter]) told.push_back(parameter);
  const Buffer buffer = buffer_of(std::span(told));
  communicator_.broadcast(buffer, buffer, 0, operation_options("gradients order")).wait();
  if (told.front() == 0) return;
  order_wanted_ = false;
  std::vector<std::size_t> order(told.begin() + 1, told.end());
  if (!grad::is_permutation(order))
    throw Error(
        Errc::corrupt,
        fmt::format("gradient buckets: rank 0 sent an invalid order of readiness: it does not name "
                    "each of the {} parameters once",
                    parameters_.size()));
  if (order != layout_.order) next_order_ = std::move(order);
}

void GradientBuckets::State::rebuild() {
  layout_ = grad::make_layout(parameters_, std::move(next_order_), options_.first_bucket_bytes,
                              options_.bucket_bytes);
  next_order_.clear();
  ++layout_number_;
  prepare_buckets();
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
#include "grad/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <rondo/error.h>

namespace rondo::grad {

namespace {

// The order that rank 0 sends: how many gradients it saw become ready, then all parameters, those
// that it saw first.
std::vector<std::uint64_t> words_of(const std::vector<std::size_t>& observed,
                                    const std::vector<std::size_t>& expected) {
  std::vector<std::uint64_t> words{observed.size()};
  std::vector<bool> seen(expected.size());
  for (const std::size_t parameter : observed) {
    words.push_back(parameter);
    seen[parameter] = true;
  }
  for (const std::size_t parameter : expected)
    if (!seen[parameter]) words.push_back(parameter);
  return words;
}

}  // namespace

// A rank 0 that saw nothing, because it had no data, sends its order in the next step.
void OrderLearner::agree(const Setup& setup, const Collector& collector) {
  if (!wanted_) return;
  std::vector<std::uint64_t> words = words_of(collector.observed_order(), setup.layout.order);
  const Buffer buffer = buffer_of(std::span(words));
  setup.communicator.broadcast(buffer, buffer, 0, setup.operation_options("gradients order"))
      .wait();
  if (words.front() == 0) return;
  wanted_ = false;
  std::vector<std::size_t> order(words.begin() + 1, words.end());
  if (const std::string problem = problem_of_order(order); !problem.empty())
    throw Error(
        Errc::corrupt,
        fmt::format("gradient buckets: rank 0 sent an invalid order of buckets ({})", problem));
  if (order != setup.layout.order) next_order_ = std::move(order);
}

void OrderLearner::rebuild(Setup& setup) {
  if (next_order_.empty()) return;
  setup.layout = make_layout(setup.parameters, std::exchange(next_order_, {}),
                             setup.options.first_bucket_bytes, setup.options.bucket_bytes);
  ++layout_number_;
}

}  // namespace rondo::grad

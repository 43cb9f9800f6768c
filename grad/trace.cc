// SPDX-License-Identifier: Apache-2.0
#include "grad/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.h>

namespace rondo::grad {

namespace {

std::int64_t nanoseconds(Trace::Time at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace

Trace::Trace(std::size_t steps, std::size_t buckets_per_step) : most_steps_(steps) {
  expect(buckets_per_step);
  kept_.steps.reserve(steps);
}

void Trace::expect(std::size_t buckets_per_step) {
  const std::size_t to_come = most_steps_ - kept_.steps.size();
  const std::size_t each = std::max<std::size_t>(buckets_per_step, 1);
  if (to_come > (most_buckets - std::min(most_buckets, kept_.buckets.size())) / each)
    throw Error(
        Errc::invalid_argument,
        fmt::format(
            "keep_trace: {} steps of {} buckets are more than the {} buckets that can be kept; "
            "keep fewer steps",
            most_steps_, each, most_buckets));
  kept_.buckets.reserve(kept_.buckets.size() + to_come * each);
}

void Trace::begin_step(std::uint64_t step, Time at) {
  kept_.buckets.resize(finished_buckets_);  // without those of a step that was given up
  keeping_ = kept_.steps.size() < most_steps_;
  current_ = {step, nanoseconds(at), 0, 0};
}

void Trace::add(std::size_t bucket, std::size_t bytes, Time ready, Time started, Time ended) {
  if (!keeping_ || kept_.buckets.size() == most_buckets) return;
  kept_.buckets.push_back(
      {current_.step, bucket, bytes, nanoseconds(ready), nanoseconds(started), nanoseconds(ended)});
}

void Trace::finish(Time called, Time at) {
  if (!keeping_) return;
  keeping_ = false;
  current_.waited = nanoseconds(called);
  current_.finished = nanoseconds(at);
  kept_.steps.push_back(current_);
  finished_buckets_ = kept_.buckets.size();
}

}  // namespace rondo::grad

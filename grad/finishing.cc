// SPDX-License-Identifier: Apache-2.0
#include "grad/finishing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <rondo/error.h>

namespace rondo::grad {

namespace {

double microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

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

Finisher::Finisher(Setup& setup, Collector& collector, Launcher& launcher)
    : setup_(setup),
      collector_(collector),
      launcher_(launcher),
      exposed_(setup.layout.buckets.size()),
      wants_order_(setup.options.rebuild && setup.parameters.size() > 1) {
  buckets_.reserve(exposed_.size());
}

std::exception_ptr Finisher::finish(std::optional<void*> stream) {
  const Clock::time_point called = Clock::now();
  in_callbacks_ = {};
  launcher_.start_rest();
  warn_of_weights();
  std::exception_ptr thrown;
  Clock::time_point waiting = called;
  for (std::size_t bucket = 0; bucket < exposed_.size(); ++bucket) {
    const Clock::time_point ended = launcher_.wait(bucket, !stream);
    exposed_[bucket] =
        std::max(ended - std::max(waiting, launcher_.launched_at(bucket)), Clock::duration::zero());
    take_in(bucket);
    if (setup_.options.on_bucket) setup_.passes->complete(stream);
    if (!thrown) thrown = call_back(bucket);
    // With unused parameters finish() has waited for all buckets at once: then only the times of
    // their ends tell how long each of them took.
    waiting = launcher_.tells_unused() ? std::max(waiting, ended) : Clock::now();
  }
  setup_.passes->complete(stream);
  buckets_.clear();
  for (std::size_t bucket = 0; bucket < exposed_.size(); ++bucket) note_bucket(bucket);
  if (wants_order_) agree_on_order();
  launcher_.release();
  const Clock::time_point now = Clock::now();
  step_ = {collector_.step(), microseconds(now - collector_.begun()),
           microseconds(now - called - in_callbacks_)};
  return thrown;
}

void Finisher::take_in(std::size_t bucket) {
  const bool wire = setup_.has_wire(setup_.layout.buckets[bucket].arena);
  if (!wire && !launcher_.tells_unused()) return;
  const auto untouched = [this](std::size_t parameter) { return launcher_.untouched(parameter); };
  setup_.passes->store(bucket, untouched, launcher_.plan().wire_scale);
}

std::exception_ptr Finisher::call_back(std::size_t bucket) noexcept {
  if (!setup_.options.on_bucket) return {};
  const Clock::time_point called = Clock::now();
  std::exception_ptr thrown;
  try {
    setup_.options.on_bucket({bucket, setup_.layout.buckets[bucket].completed});
  } catch (...) {
    thrown = std::current_exception();
  }
  in_callbacks_ += Clock::now() - called;
  return thrown;
}

void Finisher::warn_of_weights() {
  if (setup_.options.averaging != Averaging::mean || launcher_.plan().same_weights || warned_)
    return;
  warned_ = true;
  if (setup_.communicator.rank() != 0) return;
  setup_.options.warn(fmt::format(
      "gradient buckets: ranks give different weights in step {}, but Averaging::mean counts all "
      "ranks alike: a sample counts more on a rank with fewer samples; use Averaging::weighted",
      collector_.step()));
}

void Finisher::note_bucket(std::size_t bucket) {
  const double n = setup_.communicator.size();
  const Buffer travelled = setup_.travelling(bucket);
  const Clock::time_point complete = collector_.complete_at(bucket),
                          launched = launcher_.launched_at(bucket);
  BucketStatistics& s = buckets_.emplace_back();
  s.bucket = bucket;
  s.type = travelled.type;
  s.parameters = setup_.layout.buckets[bucket].parameters.size();
  s.bytes = travelled.count * size_of(travelled.type);
  s.ready_us = microseconds(complete - collector_.begun());
  s.queued_us = microseconds(launched - complete);
  s.wire_us = microseconds(launcher_.ended_at(bucket) - launched);
  s.exposed_us = microseconds(exposed_[bucket]);
  if (s.wire_us > 0)
    s.bus_bandwidth = static_cast<double>(s.bytes) * 2 * (n - 1) / n / s.wire_us * 1e6;
}

// A rank 0 that saw nothing, because it had no data, sends its order in the next step.
void Finisher::agree_on_order() {
  std::vector<std::uint64_t> words = words_of(collector_.observed_order(), setup_.layout.order);
  const Buffer buffer = buffer_of(std::span(words));
  setup_.communicator.broadcast(buffer, buffer, 0, setup_.operation_options("gradients order"))
      .wait();
  if (words.front() == 0) return;
  wants_order_ = false;
  std::vector<std::size_t> order(words.begin() + 1, words.end());
  if (const std::string problem = problem_of_order(order); !problem.empty())
    throw Error(
        Errc::corrupt,
        fmt::format("gradient buckets: rank 0 sent an invalid order of buckets ({})", problem));
  if (order != setup_.layout.order) next_order_ = std::move(order);
}

void Finisher::rebuild_layout() {
  if (next_order_.empty()) return;
  setup_.layout = make_layout(setup_.parameters, std::exchange(next_order_, {}),
                              setup_.options.first_bucket_bytes, setup_.options.bucket_bytes);
  ++layout_number_;
}

}  // namespace rondo::grad

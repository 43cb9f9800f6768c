// SPDX-License-Identifier: Apache-2.0
#include "grad/finishing.h"

#include <fmt/format.h>

#include <algorithm>

namespace rondo::grad {

Finisher::Finisher(Setup& setup, Collector& collector, Launcher& launcher, OrderLearner& order)
    : setup_(setup),
      collector_(collector),
      launcher_(launcher),
      order_(order),
      statistics_(setup.layout.buckets.size()),
      exposed_(setup.layout.buckets.size()) {
  parts_.reserve(setup.parameters.size());
  given_.reserve(setup.parameters.size());
}

std::exception_ptr Finisher::finish(std::optional<void*> stream) {
  const Clock::time_point called = Clock::now();
  in_callbacks_ = {};
  launcher_.start_rest();
  warn_of_weights();
  launcher_.wait_for_usage();
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
  note_buckets();
  order_.agree(setup_, collector_);
  launcher_.release();
  statistics_.finish_step(called, in_callbacks_);
  return thrown;
}

void Finisher::take_in(std::size_t bucket) {
  const BucketRange& range = setup_.layout.buckets[bucket];
  if (!setup_.storage.has_wire(range.arena) && !launcher_.tells_unused()) return;
  parts_.clear();
  for (const std::size_t parameter : range.parameters)
    parts_.push_back(
        {parameter, setup_.layout.piece(bucket, parameter), launcher_.untouched(parameter)});
  setup_.passes->store(bucket, parts_, launcher_.plan().wire_scale);
}

// Gradients of an arena lie in the reverse of their registration.
std::span<const GradientRange> Finisher::given() {
  given_.clear();
  for (std::size_t arena = 0; arena < setup_.layout.arenas.size(); ++arena)
    for (std::size_t parameter = setup_.parameters.size(); parameter-- > 0;) {
      const GradientPlace& place = setup_.layout.places[parameter];
      if (place.arena != arena || place.bytes == 0 || launcher_.untouched(parameter)) continue;
      if (!given_.empty() && given_.back().arena == arena &&
          given_.back().piece.offset + given_.back().piece.bytes == place.offset)
        given_.back().piece.bytes += place.bytes;
      else
        given_.push_back({arena, {place.offset, place.bytes}});
    }
  return given_;
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

void Finisher::note_buckets() {
  statistics_.forget_buckets();
  for (std::size_t bucket = 0; bucket < exposed_.size(); ++bucket)
    statistics_.add(setup_.storage.travelling(setup_.layout, bucket),
                    setup_.layout.buckets[bucket].parameters.size(),
                    {collector_.complete_at(bucket), launcher_.launched_at(bucket),
                     launcher_.ended_at(bucket), exposed_[bucket]},
                    setup_.communicator.size());
}

}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <vector>

#include <rondo/gradients.h>

#include "grad/launching.h"
#include "grad/order.h"
#include "grad/setup.h"
#include "grad/statistics.h"

namespace rondo::grad {

// Ends one step: has the launcher start what is left, then takes each bucket in as it arrives.
// Taking in widens gradients from the wire type, restores those that no rank gave, and calls
// on_bucket.
//
// Threads: the step thread (see Setup), which also calls on_bucket and warn.
// Locks: none of its own, and none is held while a callback runs.
// Failure: finish() throws what a collective throws, or Error(mismatch) when ranks differ; then the
// gradients cannot be trusted. What on_bucket throws does not end the step: the other ranks wait
// for this one's part.
class Finisher {
 public:
  using Clock = Collector::Clock;

  Finisher(Setup& setup, Collector& collector, Launcher& launcher, OrderLearner& order);

  void begin_step() { statistics_.begin_step(collector_.step(), collector_.begun()); }
  // Collective. Returns the first exception of on_bucket. stream: see Passes::complete().
  std::exception_ptr finish(std::optional<void*> stream);

  // The gradients that some rank has given in the last step, arena by arena. Valid until the next
  // call.
  std::span<const GradientRange> given();
  const Statistics& statistics() const noexcept { return statistics_; }

 private:
  void take_in(std::size_t bucket);
  std::exception_ptr call_back(std::size_t bucket) noexcept;
  void warn_of_weights();
  void note_buckets();

  Setup& setup_;
  Collector& collector_;
  Launcher& launcher_;
  OrderLearner& order_;
  Statistics statistics_;
  std::vector<Part> parts_;  // of the bucket that is being taken in
  std::vector<GradientRange> given_;
  std::vector<Clock::duration> exposed_;  // by bucket: how long finish() waited for it
  Clock::duration in_callbacks_{};        // in this step
  bool warned_ = false;
};

}  // namespace rondo::grad

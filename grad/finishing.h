// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include <rondo/gradients.h>

#include "grad/launching.h"
#include "grad/setup.h"

namespace rondo::grad {

// Ends one step: has the launcher start what is left, then takes each bucket in as it arrives.
// Taking in widens gradients from the wire type, restores those that no rank gave, and calls
// on_bucket. It keeps the times of the last step that travelled.
//
// It also learns in which order gradients become ready, once, and reorders the buckets accordingly:
// rank 0 sends the order that it saw, and the next step starts buckets in that order. Gradients do
// not move.
//
// Threads: the step thread (see Setup), which also calls on_bucket and warn.
// Locks: none of its own, and none is held while a callback runs.
// Failure: finish() throws what a collective throws, Error(mismatch) when ranks differ, or
// Error(corrupt) when rank 0 sends something that is not an order; then the gradients cannot be
// trusted. What on_bucket throws does not end the step: the other ranks wait for
// this one's part.
class Finisher {
 public:
  using Clock = Collector::Clock;

  Finisher(Setup& setup, Collector& collector, Launcher& launcher);

  // Between steps: applies a new order to the layout.
  void rebuild_layout();
  std::uint64_t layout_number() const noexcept { return layout_number_; }
  // Collective. Returns the first exception of on_bucket. stream: see Passes::complete().
  std::exception_ptr finish(std::optional<void*> stream);

  std::span<const BucketStatistics> buckets() const noexcept { return buckets_; }
  const StepStatistics& step() const noexcept { return step_; }

 private:
  void take_in(std::size_t bucket);
  std::exception_ptr call_back(std::size_t bucket) noexcept;
  void warn_of_weights();
  void agree_on_order();
  void note_bucket(std::size_t bucket);

  Setup& setup_;
  Collector& collector_;
  Launcher& launcher_;
  std::vector<Clock::duration> exposed_;  // by bucket: how long finish() waited for it
  Clock::duration in_callbacks_{};        // in this step
  bool warned_ = false;
  std::vector<BucketStatistics> buckets_;  // nothing is allocated after the constructor
  StepStatistics step_;
  bool wants_order_;                     // rank 0 has not sent an order yet
  std::vector<std::size_t> next_order_;  // empty: the layout stays
  std::uint64_t layout_number_ = 0;
};

}  // namespace rondo::grad

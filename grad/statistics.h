// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include <rondo/gradients.h>

namespace rondo::grad {

// When things happened to one bucket.
struct BucketTimes {
  std::chrono::steady_clock::time_point complete, launched, ended;
  std::chrono::nanoseconds exposed{};
};

// Keeps the times of the last step that travelled.
//
// Threads: the step thread (see Setup). Locks: none.
// Failure: none; nothing is allocated after the constructor.
class Statistics {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Statistics(std::size_t buckets) { buckets_.reserve(buckets); }

  void begin_step(std::uint64_t step, Time begun);
  void forget_buckets();  // those of the last step
  // In the order of buckets. `travelled`: its bytes as they travelled; `ranks`: of the
  // communicator.
  void add(const Buffer& travelled, std::size_t parameters, const BucketTimes& times, int ranks);
  void finish_step(Time finish_called, std::chrono::nanoseconds in_callbacks);

  std::span<const BucketStatistics> buckets() const noexcept { return buckets_; }
  const StepStatistics& step() const noexcept { return step_; }

 private:
  Time begun_;
  std::uint64_t number_ = 0;
  std::vector<BucketStatistics> buckets_;
  StepStatistics step_;
};

}  // namespace rondo::grad

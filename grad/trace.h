// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/communicator.h>

namespace rondo::grad {

// Times in nanoseconds since the epoch of the steady clock: of this rank, and in what others sent,
// of rank 0.
struct TracedBucket {
  std::uint64_t step = 0, bucket = 0, bytes = 0;
  std::int64_t ready = 0, started = 0, ended = 0;
};
struct TracedStep {
  std::uint64_t step = 0;
  std::int64_t began = 0, waited = 0, finished = 0;  // waited: finish() was called
};
struct RankTrace {
  std::vector<TracedStep> steps;
  std::vector<TracedBucket> buckets;
  std::int64_t clock_error = 0;  // times are known up to this many nanoseconds
};

// What happened to the buckets of the first steps since it was made. Keeping a step allocates
// nothing while it has as many buckets as were expected.
class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Trace() = default;  // keeps nothing
  // Throws Error(invalid_argument) when that is more than most_buckets together.
  Trace(std::size_t steps, std::size_t buckets_per_step);
  // From now on a step has so many: makes room for the steps that are still to come.
  void expect(std::size_t buckets_per_step);

  // `step` is what messages call it. Steps beyond those to be kept are ignored, with their buckets.
  void begin_step(std::uint64_t step, Time at);
  void add(std::size_t bucket, std::size_t bytes, Time ready, Time started, Time ended);
  void finish(Time called, Time at);  // a step that never finishes is not kept
  std::size_t steps() const noexcept { return kept_.steps.size(); }

  // Collective: writes what all ranks have kept to a file on rank 0, in Chrome trace format. One
  // process for each rank, with tracks for steps and what finish() took of them, for buckets in the
  // queue, and for those on the wire (several where they overlap). Clocks are set by rank 0's, up
  // to half the fastest of some round trips; how much that was is in the name of the process. Uses
  // messages between rank 0 and the others with tag message_tag. The file appears whole or not at
  // all (PATH.tmp, then renamed). Throws Error on every rank: (system), naming the path and the
  // reason.
  void save(Communicator& communicator, const std::string& path) const;

  static constexpr std::size_t most_buckets = std::size_t{1} << 24;
  static constexpr std::uint32_t message_tag = 0x74726163;

 private:
  bool keeping_ = false;
  std::size_t most_steps_ = 0;
  std::size_t finished_buckets_ = 0;  // of the steps in kept_
  TracedStep current_;
  RankTrace kept_;
};

}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/communicator.h>

namespace rondo::grad {

// Times are nanoseconds since the epoch of the steady clock: of this rank's in its own trace, of
// rank 0's in a trace that another rank has sent.
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

// Keeps the times of the buckets of the first steps since it was made. Keeping a step allocates
// nothing while it has no more buckets than expected.
//
// Threads: thread-bound. Locks: none.
// Failure: the constructor and save() throw Error; everything else cannot fail.
class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Trace() = default;  // keeps nothing
  // Throws Error(invalid_argument) if all steps together have more than most_buckets.
  Trace(std::size_t steps, std::size_t buckets_per_step);
  // Makes room for the steps to come, which have this many buckets.
  void expect(std::size_t buckets_per_step);

  // `step` is its number in messages. Steps beyond those to be kept are ignored, with their
  // buckets.
  void begin_step(std::uint64_t step, Time at);
  void add(std::size_t bucket, std::size_t bytes, Time ready, Time started, Time ended);
  void finish(Time called, Time at);  // a step that never finishes is not kept
  std::size_t steps() const noexcept { return kept_.steps.size(); }

  // Collective: writes the traces of all ranks to a file on rank 0, in Chrome trace format. Each
  // rank is a process, with tracks for steps and the time in finish(), for queued buckets, and for
  // buckets on the wire (several tracks if they overlap). Times are those of rank 0's clock, with
  // an error of at most half the fastest of some round trips; the name of the process has the
  // error. Sends messages between rank 0 and the others with tag message_tag. The file appears
  // complete or not at all (it is written to PATH.tmp and renamed). If that fails, every rank
  // throws Error(system) with the path and the reason.
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

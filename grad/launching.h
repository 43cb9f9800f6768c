// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/gradients.h>

#include "grad/collecting.h"
#include "grad/failure.h"
#include "grad/header.h"
#include "grad/setup.h"

namespace rondo::grad {

// Starts the collectives of one step: the header in begin_step(), then each bucket, in the order of
// the layout, once the header has arrived and the bucket is complete. No bucket travels in a step
// in which ranks do not agree.
//
// Gradients that no rank gives must stay as they are, so in steps that have unused parameters one
// bit for each parameter travels. With find_unused it travels in finish(), after all buckets,
// because only then do ranks know what is unused. Where ranks only name unused parameters in
// begin_step(), it travels before the first bucket.
//
// Threads: run() on the thread that holds the launcher's role (see Collector), which may be any
// that calls ready(). settle_header() from any. header() gives a reference from any; the collector
// reads it under its lock. Everything else on the step thread.
// Locks: none of its own. run() takes the collector's once for each bucket, to hand over. The
// function that notes the end of a bucket runs on whatever thread ends it, and writes one atomic.
// (With gradients on a GPU there is none: a bucket may end when a later step runs.)
// Failure: what run() throws is kept as the failure of the step, and all ranks know it. Other
// functions throw what a collective throws. The destructor waits for all collectives: they borrow
// the gradients, and so it must run before their memory goes.
class Launcher {
 public:
  using Clock = Collector::Clock;

  Launcher(Setup& setup, Collector& collector, Failure& failure);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher();

  // Starts the header of the collector's step.
  void begin_step(const StepOptions& options);
  const Work& header() const noexcept { return header_work_; }
  // Waits for the header for at most this long, and keeps quiet about what has failed.
  void settle_header(std::chrono::nanoseconds patience) noexcept;

  // Starts `bucket` and all complete ones after it.
  void run(std::size_t bucket);

  // In finish(), with no gradient missing. Returns once all buckets are started, and it is known
  // what no rank gives. Throws Error(mismatch) on every rank when ranks differ in step, check or
  // buckets.
  void start_rest();
  // Waits for a bucket as Passes::await() does. Returns when it ended, or for a GPU when this
  // returned.
  Clock::time_point wait(std::size_t bucket, bool on_host);
  void release();  // all handles at once, after a step

  // From the arrival of the header on.
  const StepPlan& plan() const noexcept { return plan_; }
  // Whether bits of unused parameters travel in this step.
  bool tells_unused() const noexcept { return plan_.hints || setup_.options.find_unused; }
  // After start_rest(): no rank gives this gradient. When no rank takes part at all, all
  // gradients become zero instead.
  bool untouched(std::size_t parameter) const noexcept {
    return tells_unused() && plan_.active > 0 && (used_[parameter / 64] >> parameter % 64 & 1) == 0;
  }
  bool pending() const noexcept;  // a bucket is under way
  Clock::time_point launched_at(std::size_t bucket) const noexcept {
    return flights_[bucket].launched;
  }
  Clock::time_point ended_at(std::size_t bucket) const noexcept {
    return Clock::time_point(Clock::duration(flights_[bucket].ended));
  }

 private:
  struct Flight {
    Clock::time_point launched;
    Work work;
    // When it ended, on Clock; 0: not yet. The thread that ends a bucket may still be about to
    // write here when wait() returns on another one.
    std::atomic<Clock::rep> ended{0};
  };

  bool header_arrived();
  void launch(std::size_t bucket);
  void start_usage();
  [[noreturn]] void disagree();
  std::string where() const;

  Setup& setup_;
  Collector& collector_;
  Failure& failure_;
  HeaderValues header_{};
  Work header_work_;
  double weight_ = 1;
  std::uint64_t check_ = 0;
  bool planned_ = false;  // plan_ is that of this step
  StepPlan plan_;
  std::vector<std::uint64_t> used_;  // a bit for each parameter
  Work usage_work_;
  std::vector<Flight> flights_;  // by bucket
};

}  // namespace rondo::grad

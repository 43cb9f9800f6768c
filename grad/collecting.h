// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/gradients.h>

#include "grad/failure.h"
#include "grad/setup.h"

namespace rondo::grad {

enum class Phase : std::uint8_t {
  idle,          // between steps
  local,         // an accumulation: gradients are counted, nothing travels
  synchronized,  // buckets start as they become complete
  finishing      // finish() takes buckets in
};

// Thrown for a mistake on this rank that must end the step on all ranks. The caller tells them,
// when no lock is held any more.
struct Mistake {
  std::string text;
};

// Collects the gradients of one step: which are ready, which are missing, which bucket is complete
// and may start next. One thread at a time starts buckets; it holds the launcher's role. ready()
// hands out the role together with the number of the next bucket. The holder starts buckets
// without a lock, so that other threads can call ready() meanwhile. after_launch() hands out the
// next complete bucket or takes the role back, in one locked section: no bucket is forgotten.
//
// Threads: claim() and ready() from any. after_launch(), gives_nothing() and any_unused() on
// the thread that holds the launcher's role. Everything else on the step thread (see Setup).
// Locks: one mutex. ready() takes it once; the only calls out of the locked section are
// Work::done() and Failure::check().
// Failure: refused calls throw Error(invalid_argument) and change nothing. claim(), ready() and
// close() throw Mistake too.
class Collector {
 public:
  using Clock = std::chrono::steady_clock;

  Collector(Setup& setup, const Failure& failure);

  // Between steps. Refuses indices that do not exist or are named twice.
  void check_unused(std::span<const std::size_t> unused);
  void zero(void* stream);  // all gradients; refused once buckets have started

  // Counts the step and marks unused parameters. The step accepts gradients only after open().
  void begin_step(const StepOptions& options);
  void open(Phase phase);

  // A gradient that must be taken before it is ready: from here on it is this thread's.
  void claim(std::size_t parameter);
  // Returns the number of a bucket when the calling thread has got the launcher's role. No bucket
  // starts before `header` has ended. claimed: this thread has claimed the gradient.
  std::optional<std::size_t> ready(std::size_t parameter, bool claimed, const Work& header);

  // Gets the launcher's role if a bucket may start and nobody has the role.
  std::optional<std::size_t> take_role(const Work& header);
  // The next bucket to start, or none: then the role is given back. `launched`: the bucket handed
  // out last has been started.
  std::optional<std::size_t> after_launch(bool launched);
  // This rank sends zeros for the parameter: it is unused, and no local step gave anything. Takes
  // no lock: the marks of a complete bucket do not change any more.
  bool gives_nothing(std::size_t parameter) const noexcept {
    return marks_[parameter] == Mark::unused && !accumulated_[parameter];
  }
  bool any_unused() const noexcept { return any_unused_; }

  // Waits until no thread holds the launcher's role, marks missing gradients as unused where that
  // is allowed, and moves a synchronized step on to `finishing`. `accumulating`: an Accumulation is
  // alive.
  void close(bool accumulating);
  void end_step();

  Phase phase() const;
  std::uint64_t step() const noexcept { return step_; }
  Clock::time_point begun() const noexcept { return begun_; }
  // Once ready() changes nothing any more, after close() or the last call: how many buckets of this
  // step have been started, when a bucket was complete, and in which order gradients became ready.
  std::size_t launched() const noexcept { return next_; }
  Clock::time_point complete_at(std::size_t bucket) const { return buckets_[bucket].complete; }
  const std::vector<std::size_t>& observed_order() const noexcept { return observed_; }
  // Sets a bit for each parameter for which this rank gives something.
  void put_given(std::span<std::uint64_t> bits) const;

 private:
  enum class Mark : std::uint8_t { waiting, ready, unused };
  struct Bucket {
    std::size_t waiting = 0;  // gradients that are not ready
    Clock::time_point complete;
  };

  void check_awaited(std::size_t parameter, bool claimed) const;
  void check_missing() const;
  void mark(std::size_t parameter, Mark how);
  std::optional<std::size_t> role_if_free(const Work& header);
  bool has_next() const { return next_ < buckets_.size() && buckets_[next_].waiting == 0; }

  Setup& setup_;
  const Failure& failure_;

  mutable std::mutex mutex_;
  std::condition_variable role_free_;
  Phase phase_ = Phase::idle;
  bool launching_ = false;  // a thread holds the launcher's role
  std::size_t next_ = 0;    // the bucket that starts next
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> observed_;

  // Changed under the lock. The launcher reads them without it: see gives_nothing().
  std::vector<Mark> marks_;
  std::vector<bool> claimed_;
  std::vector<bool> accumulated_;  // given in a local step since the last step that travelled
  bool any_unused_ = false;

  // Changed by the step thread while the phase is idle.
  std::uint64_t step_ = 0;
  bool has_weight_ = true;
  Clock::time_point begun_;
};

}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
//
// A call of a process group under way, or done, as torch knows it.
//
// A thread that waits for it drives Rondo. Where nobody waits, Rondo's background thread drives and
// one of the session's Finishers does the rest: it copies results into the caller's tensors, marks
// the future and so makes callbacks. No callback runs on a thread that drives, and no tensor is
// freed there: both may want Python's lock (GIL), for which a driving thread must not wait.
//
// On a GPU too the operations have ended when their results are in its memory, as the host has
// seen. So torch may give their memory away at once. What comes after them is enqueued on a
// stream of its own, and the streams of those who wait are made to wait for that.
#pragma once

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <rondo/work.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "python/torch/call_stream.h"
#include "python/torch/flat.h"
#include "python/torch/group_session.h"

namespace rondo::python {

using Parts = std::vector<Work>;

// Thread-safe.
class PendingWork final : public c10d::Work {
 public:
  // What comes after the operations, such as a copy to the caller's strides.
  using After = std::function<void()>;
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  // after_waits: After waits for more operations. It then runs on a Finisher, so that wait(timeout)
  // and isCompleted() keep their word. joined: works whose results who waits for this one finds.
  PendingWork(std::shared_ptr<GroupSession> session, int rank, c10d::OpType type, const char* title,
              const Tensors& inputs, Tensors outputs, CallStream stream, std::uint64_t sequence,
              std::chrono::milliseconds timeout, bool after_waits, Works joined)
      : c10d::Work(rank, type, title, inputs),
        session_(std::move(session)),
        outputs_(std::move(outputs)),
        stream_(stream),
        sequence_(sequence),
        timeout_(timeout),
        after_waits_(after_waits),
        joined_(std::move(joined)) {}

  // The operations have been started. `after` keeps the memory that they use. Once only.
  void begin(Parts parts, After after) {
    parts_ = std::move(parts);
    after_ = std::move(after);
    itself_ = c10::intrusive_ptr<PendingWork>::unsafe_reclaim_from_nonowning(this);
    countdown_->left = parts_.size() + 1;
    for (const rondo::Work& part : parts_)
      part.on_done([countdown = countdown_, this](std::error_code) {
        if (countdown->part_ends()) finish_later();
      });
    if (countdown_->part_ends()) after_waits_ ? finish_later() : finish_now();
  }

  // Whether all has been done. Drives nothing.
  bool isDone() const {
    const std::lock_guard lock(own_mutex_);
    return finished_ && (!future_ || future_->completed());
  }

  // Makes no callbacks: they may take long.
  bool isCompleted() override {
    if (isDone()) return true;
    if (drive(std::chrono::steady_clock::now()) && countdown_->claim()) {
      if (after_waits_ || has_future())
        finish_later();
      else
        finish_now();
    }
    return isDone();
  }
  bool isSuccess() const override {
    const std::lock_guard lock(own_mutex_);
    return finished_ && !error_;
  }
  std::exception_ptr exception() const override {
    const std::lock_guard lock(own_mutex_);
    return finished_ ? error_ : nullptr;
  }
  // A timeout of 0 is none. One that passes leaves the operation under way.
  bool wait(std::chrono::milliseconds timeout) override {
    if (!isDone()) {
      using std::chrono::hours;
      const auto until =
          std::chrono::steady_clock::now() +
          (timeout.count() > 0 ? timeout : std::chrono::milliseconds{hours{24 * 365}});
      const bool ended = drive(until);
      if (ended && countdown_->claim()) after_waits_ ? finish_later() : finish_now();
      TORCH_CHECK(ended && await_finish(until), "Operation timed out!");
    }
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    synchronize();
    return true;
  }
  // After the end: this thread's current stream comes after the results.
  void synchronize() override {
    {
      const std::lock_guard lock(own_mutex_);
      if (enqueued_) enqueued_->block(CallStream::current(enqueued_->device()));
    }
    for (const auto& work : joined_) work->synchronize();
  }
  void abort() override { session_->abort("Work.abort() was called"); }
  Tensors result() override { return outputs_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }
  std::chrono::milliseconds getTimeout() const override { return timeout_; }
  int sourceRank() const override {
    TORCH_CHECK(opType_ == c10d::OpType::RECVANYSOURCE && isSuccess(),
                "rondo: only a receive from any rank that has succeeded has a source");
    return parts_.front().source();
  }

  // Who has the future may sleep on it, which drives nothing: the background thread does.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    bool done = false;
    {
      const std::lock_guard lock(own_mutex_);
      if (future_) return future_;
      future_ = c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()), stream_.devices());
      done = finished_;
    }
    if (done)
      mark_future();
    else
      session_->leave(parts_);
    return future_;
  }

 private:
  // What the operations know of the work. It has no tensors and may outlive the work.
  struct Countdown {
    std::atomic<std::size_t> left{0};  // operations that run, and the start
    std::atomic<int> waiting{0};       // threads that will look when all have ended
    std::atomic<bool> claimed{false};

    // True for one caller, which must finish the work.
    bool claim() noexcept { return !claimed.exchange(true); }
    // True if the caller must finish the work: nobody else will. It may be the thread that drives.
    bool part_ends() noexcept { return left.fetch_sub(1) == 1 && waiting.load() == 0 && claim(); }
  };

  // Drives until all operations have ended or the time is over. True: they have, and the caller
  // must claim.
  bool drive(std::chrono::steady_clock::time_point until) {
    bool ended = true;
    countdown_->waiting.fetch_add(1);
    try {
      for (const rondo::Work& part : parts_) ended = ended && session_->await(part, until);
    } catch (...) {
      countdown_->waiting.fetch_sub(1);
      throw;
    }
    countdown_->waiting.fetch_sub(1);
    return ended || countdown_->left.load() == 0;  // ended after the last look, told to nobody
  }

  // Only who has claimed the work calls one of these two, once.
  void finish_later() {
    session_->finish_later([this] { finish_now(); });
  }
  void finish_now() {
    std::exception_ptr error;
    std::optional<c10::Event> enqueued;
    for (const rondo::Work& part : parts_)
      if (part.error() && !error) error = session_->error(part);
    if (!error && after_) {
      try {
        const at::ThreadLocalStateGuard state(state_);
        const at::NoGradGuard no_gradient;
        const std::optional<c10::Stream> side = stream_.side();
        const c10::OptionalStreamGuard guard(side);
        after_();
        enqueued = mark_of(side);
      } catch (...) {
        error = std::current_exception();
      }
    }
    after_ = nullptr;
    finish(error);  // ends the profiler's event before anybody returns from wait()
    bool marks = false;
    {
      const std::lock_guard lock(own_mutex_);
      error_ = error;
      enqueued_ = std::move(enqueued);
      finished_ = true;
      marks = static_cast<bool>(future_);
    }
    changed_.notify_all();
    if (marks) mark_future();
    const auto last = std::move(itself_);
  }
  void mark_future() {
    const at::ThreadLocalStateGuard state(state_);
    if (error_) return future_->setError(error_);
    std::optional<c10::Stream> side;  // for which the future's users wait
    c10::OptionalStreamGuard guard;
    try {
      side = stream_.side();
      if (side) guard.reset_stream(*side);
      synchronize();
      mark_of(side);  // a GPU that has failed says so before the future is marked
    } catch (...) {
      return future_->setError(std::current_exception());
    }
    future_->markCompleted(c10::IValue(outputs_));
  }

  bool has_future() const {
    const std::lock_guard lock(own_mutex_);
    return static_cast<bool>(future_);
  }
  // Whoever has claimed the work finishes it. A future is marked then, too; its callbacks may run.
  bool await_finish(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(own_mutex_);
    if (!changed_.wait_until(lock, until, [this] { return finished_; })) return false;
    const auto future = future_;
    lock.unlock();
    if (future) future->wait();
    return true;
  }

  const std::shared_ptr<GroupSession> session_;
  const at::ThreadLocalState state_;  // of the caller
  const Tensors outputs_;
  const CallStream stream_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const bool after_waits_;
  const Works joined_;
  const std::shared_ptr<Countdown> countdown_ = std::make_shared<Countdown>();
  Parts parts_;
  After after_;
  c10::intrusive_ptr<PendingWork> itself_;  // until it is finished, also when nobody else holds it

  mutable std::mutex own_mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::exception_ptr error_;
  std::optional<c10::Event> enqueued_;  // comes after what follows the operations on a GPU
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace rondo::python

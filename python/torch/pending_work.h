// SPDX-License-Identifier: Apache-2.0
//
// A call of a process group under way, or done, as torch knows it.
//
// A thread that waits for it drives Rondo. Where nobody waits, Rondo's background thread drives and
// one of the session's Finishers does the rest: it copies results into the caller's tensors, marks
// the future and so makes callbacks. No callback runs on a thread that drives.
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
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "flat.h"
#include "session.h"

namespace rondo::torch_backend {

using Parts = std::vector<Work>;

// Thread-safe.
class PendingWork final : public c10d::Work {
 public:
  // What comes after the operations, such as a copy to the caller's strides.
  using After = std::function<void()>;

  PendingWork(std::shared_ptr<Session> session, int rank, c10d::OpType type, const char* title,
              const Tensors& inputs, Tensors outputs, std::uint64_t sequence,
              std::chrono::milliseconds timeout)
      : c10d::Work(rank, type, title, inputs),
        session_(std::move(session)),
        outputs_(std::move(outputs)),
        sequence_(sequence),
        timeout_(timeout) {}

  // The operations have been started. `after` keeps the memory that they use. Once only.
  void begin(Parts parts, After after) {
    parts_ = std::move(parts);
    after_ = std::move(after);
    left_ = parts_.size() + 1;
    for (const rondo::Work& part : parts_) {
      c10::raw::intrusive_ptr::incref(this);
      part.on_done([this](std::error_code) { part_ended(); });
    }
    if (one_less()) finish_now();
  }

  // Adds the operations of this work to another.
  void share_parts(Parts& parts) const {
    for (const rondo::Work& part : parts_) parts.push_back(part.share());
  }
  // Whether all has been done. Drives nothing.
  bool isDone() const { return is_finished(); }

  bool isCompleted() override {
    if (is_finished()) return true;
    return drive(std::chrono::milliseconds{0});
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
    if (!is_finished()) {
      const bool done = drive(timeout.count() > 0 ? timeout : std::chrono::hours{24 * 365});
      TORCH_CHECK(done, "Operation timed out!");
    }
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    return true;
  }
  void synchronize() override {}
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
      future_ =
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
      done = finished_;
    }
    if (done)
      mark_future();
    else
      session_->look([&] {
        for (const rondo::Work& part : parts_) part.leave();
      });
    return future_;
  }

 private:
  bool is_finished() const {
    const std::lock_guard lock(own_mutex_);
    return finished_;
  }
  // Drives until all parts have ended or the time is over. If they have, finishes the work.
  bool drive(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    bool done = true;
    waiting_.fetch_add(1);
    session_->look([&] {
      for (const rondo::Work& part : parts_) done = done && ends_until(part, until);
    });
    if (done) finish_now();
    waiting_.fetch_sub(1);
    if (!done && ended_.load()) finish_by_others();  // it has ended after the last look
    return done;
  }
  // An error of the part stays with it.
  static bool ends_until(const rondo::Work& part, std::chrono::steady_clock::time_point until) {
    const auto left = until - std::chrono::steady_clock::now();
    try {
      return part.wait_for(std::max(left, std::chrono::steady_clock::duration::zero()));
    } catch (const std::exception&) {
      return part.done();
    }
  }

  bool one_less() noexcept {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
    ended_.store(true);
    return true;
  }
  // Runs on the thread that ends the part: it drives, so it must not do more than this.
  void part_ended() {
    if (one_less() && waiting_.load() == 0) finish_by_others();
    c10::raw::intrusive_ptr::decref(this);
  }
  void finish_by_others() {
    {
      const std::lock_guard lock(own_mutex_);
      if (finishing_) return;
    }
    session_->finish_later([self = c10::intrusive_ptr<PendingWork>::unsafe_reclaim_from_nonowning(
                                this)] { self->finish_now(); });
  }

  // Returns when the work is finished, by this thread or by another.
  void finish_now() {
    {
      std::unique_lock lock(own_mutex_);
      if (std::exchange(finishing_, true)) return changed_.wait(lock, [&] { return finished_; });
    }
    std::exception_ptr error;
    for (const rondo::Work& part : parts_)
      if (part.error() && !error) error = session_->error(part);
    if (!error && after_) {
      try {
        const at::ThreadLocalStateGuard state(state_);
        const at::NoGradGuard no_gradient;
        after_();
      } catch (...) {
        error = std::current_exception();
      }
    }
    after_ = nullptr;
    bool marks = false;
    {
      const std::lock_guard lock(own_mutex_);
      error_ = error;
      finished_ = true;
      marks = static_cast<bool>(future_);
    }
    changed_.notify_all();
    if (marks) mark_future();
    finish(error);
  }
  void mark_future() {
    const at::ThreadLocalStateGuard state(state_);
    if (error_)
      future_->setError(error_);
    else
      future_->markCompleted(c10::IValue(outputs_));
  }

  const std::shared_ptr<Session> session_;
  const at::ThreadLocalState state_;  // of the caller
  const Tensors outputs_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  Parts parts_;
  After after_;
  std::atomic<std::size_t> left_{0};
  std::atomic<int> waiting_{0};
  std::atomic<bool> ended_{false};

  mutable std::mutex own_mutex_;
  std::condition_variable changed_;
  bool finishing_ = false, finished_ = false;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace rondo::torch_backend

// SPDX-License-Identifier: Apache-2.0
#include "python/torch/pending_work.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace rondo::python {

// Counts the operations that have not ended. It has no tensors, so it may outlive the work.
struct PendingWork::Countdown {
  std::atomic<std::size_t> left{0};  // operations that run, and the start
  std::atomic<int> waiting{0};       // threads that will look when all have ended
  std::atomic<bool> claimed{false};

  // True for one caller, which must finish the work.
  bool claim() noexcept { return !claimed.exchange(true); }
  // True if the caller must finish the work: nobody else will. It may be the thread that drives.
  bool part_ends() noexcept { return left.fetch_sub(1) == 1 && waiting.load() == 0 && claim(); }
};

PendingWork::PendingWork(std::shared_ptr<GroupSession> session, int rank, const GroupCall& call,
                         CallStream stream, std::uint64_t sequence,
                         std::chrono::milliseconds timeout)
    : c10d::Work(rank, call.type, call.title, call.inputs),
      session_(std::move(session)),
      outputs_(call.outputs),
      stream_(stream),
      sequence_(sequence),
      timeout_(timeout),
      after_waits_(call.after_waits),
      after_all_(call.after_all),
      countdown_(std::make_shared<Countdown>()) {}

void PendingWork::begin(Parts parts, After after, bool idle) {
  idle_ = idle && !stream_;
  if (!idle_) state_.emplace();
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

bool PendingWork::isDone() const {
  const std::lock_guard lock(own_mutex_);
  return finished_ && (!future_ || future_->completed());
}

bool PendingWork::isSuccess() const {
  const std::lock_guard lock(own_mutex_);
  return finished_ && !error_;
}

std::exception_ptr PendingWork::exception() const {
  const std::lock_guard lock(own_mutex_);
  return finished_ ? error_ : nullptr;
}

void PendingWork::release_resources() {
  outputs_ = {};
  future_.reset();
}

bool PendingWork::has_future() const {
  const std::lock_guard lock(own_mutex_);
  return static_cast<bool>(future_);
}

bool PendingWork::isCompleted() {
  if (!isDone() && drive(std::chrono::steady_clock::now()) && countdown_->claim()) {
    if (after_waits_ || has_future())
      finish_later();
    else
      finish_now();
  }
  return isDone() && all_on_gpu_has_ended();
}

bool PendingWork::wait(std::chrono::milliseconds timeout) {
  const bool host_waits = timeout.count() > 0;
  if (host_waits ? !(isDone() && all_on_gpu_has_ended()) : !isDone() && !join()) await_end(timeout);
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  order();
  return true;
}

void PendingWork::wait_for_operations() {
  if (!isDone()) await_end(kNoTimeout);
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
}

c10::intrusive_ptr<c10::ivalue::Future> PendingWork::getFuture() {
  bool done = false;
  {
    const std::lock_guard lock(own_mutex_);
    if (future_) return future_;
    if (idle_) state_.emplace();
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), stream_.devices());
    done = finished_;
  }
  if (done) {
    mark_future();
  } else {
    session_->begin_sleep();
    session_->leave(parts_);
  }
  return future_;
}

int PendingWork::sourceRank() const {
  TORCH_CHECK(opType_ == c10d::OpType::RECVANYSOURCE && isSuccess(),
              "rondo: only a receive from any rank that has succeeded has a source");
  return parts_.front().source();
}

void PendingWork::await_end(std::chrono::milliseconds timeout) {
  const auto until = base::after(std::chrono::steady_clock::now(),
                                 timeout.count() > 0 ? timeout : std::chrono::milliseconds::max());
  const bool ended = drive(until);
  if (ended && countdown_->claim()) after_waits_ ? finish_later() : finish_now();
  TORCH_CHECK(ended && await_finish(until), "Operation timed out!");
  if (timeout.count() <= 0) return;
  while (!all_on_gpu_has_ended()) {
    TORCH_CHECK(std::chrono::steady_clock::now() < until, "Operation timed out!");
    std::this_thread::yield();
  }
}

bool PendingWork::join() {
  if (!stream_ || after_waits_) return false;
  const std::optional<c10::Stream> side = stream_.side();
  bool enqueued = drive_each(
      [&](const rondo::Work& part) { return session_->join(part, side->native_handle()); });
  bool ended = true;
  for (const rondo::Work& part : parts_) {
    enqueued = enqueued && !part.error();
    ended = ended && part.done();
  }
  if (!enqueued || ended) return false;
  const std::lock_guard lock(follow_mutex_);
  follow(side);
  return !follow_error_;
}

bool PendingWork::drive(std::chrono::steady_clock::time_point until) {
  const bool ended =
      drive_each([&](const rondo::Work& part) { return session_->await(part, until); });
  return ended || countdown_->left.load() == 0;  // ended after the last look, told to nobody
}

template <class Reached>
bool PendingWork::drive_each(const Reached& reached) {
  bool all = true;
  countdown_->waiting.fetch_add(1);
  try {
    for (const rondo::Work& part : parts_) all = all && reached(part);
  } catch (...) {
    countdown_->waiting.fetch_sub(1);
    if (countdown_->left.load() == 0 && countdown_->claim()) finish_later();
    throw;
  }
  countdown_->waiting.fetch_sub(1);
  return all;
}

void PendingWork::finish_now() {
  std::exception_ptr error;
  for (const rondo::Work& part : parts_)
    if (part.error() && !error) error = session_->error(part);
  After done;  // with tensors, which go without a lock
  {
    const std::lock_guard lock(follow_mutex_);
    if (!error) {
      follow(stream_.side());
      error = follow_error_;
    }
    followed_ = true;
    done = std::move(after_);
  }
  done = nullptr;
  finish(error);  // ends the profiler's event before anybody returns from wait()
  bool marks = false;
  {
    const std::lock_guard lock(own_mutex_);
    error_ = error;
    finished_ = true;
    marks = static_cast<bool>(future_);
  }
  // After the mark: a recorder that begins with this work meanwhile sees that it has ended.
  if (!error) session_->completions().tell(sequence_);
  changed_.notify_all();
  if (marks) {
    mark_future();
    session_->end_sleep();
  }
  const auto last = std::move(itself_);
}

void PendingWork::follow(const std::optional<c10::Stream>& side) {
  if (std::exchange(followed_, true) || idle_) return;
  try {
    const at::ThreadLocalStateGuard state(*state_);
    const at::NoGradGuard no_gradient;
    const c10::OptionalStreamGuard guard(side);
    if (after_) after_();
    if (!side) return;
    SideMarks::Mark enqueued = session_->sides().add(*side);
    const std::lock_guard lock(own_mutex_);
    enqueued_ = std::move(enqueued);
  } catch (...) {
    follow_error_ = std::current_exception();
  }
}

void PendingWork::order() {
  {
    const std::lock_guard lock(own_mutex_);
    if (enqueued_) enqueued_->block(CallStream::current(enqueued_->device()));
  }
  if (after_all_) session_->sides().order();
}

bool PendingWork::all_on_gpu_has_ended() {
  const std::lock_guard lock(own_mutex_);
  if (error_) return true;
  try {
    return (!enqueued_ || enqueued_->query()) && (!after_all_ || session_->sides().have_ended());
  } catch (...) {
    error_ = std::current_exception();
    return true;
  }
}

void PendingWork::mark_future() {
  const at::ThreadLocalStateGuard state(*state_);
  if (const std::exception_ptr error = exception()) return future_->setError(error);
  std::optional<c10::Stream> side;  // for which the future's users wait
  c10::OptionalStreamGuard guard;
  try {
    side = stream_.side();
    if (side) guard.reset_stream(*side);
    order();
    mark_of(side);  // a GPU that has failed says so before the future is marked
  } catch (...) {
    return future_->setError(std::current_exception());
  }
  future_->markCompleted(c10::IValue(outputs_));
}

bool PendingWork::await_finish(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(own_mutex_);
  while (!changed_.wait_for(lock, signal_interval, [this] { return finished_; })) {
    if (std::chrono::steady_clock::now() >= until) return false;
    lock.unlock();
    session_->run_handlers();
    lock.lock();
  }
  const auto future = future_;
  lock.unlock();
  if (future) future->wait();
  return true;
}

}  // namespace rondo::python

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
// seen. Until then the work keeps their tensors, so torch may give their memory away afterwards.
// Work that comes after them is enqueued on a stream of its own, and the streams of those who wait
// are made to wait for that. So wait() returns before the end, as soon as all is enqueued: the host
// stays only for what no stream can do, which is to exchange data with other ranks.
#pragma once

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <rondo/work.h>

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
#include "python/torch/side_marks.h"

namespace rondo::python {

using Parts = std::vector<Work>;

// A call of torch, which may be several operations.
struct GroupCall {
  c10d::OpType type;
  const char* title;
  std::chrono::milliseconds timeout;
  bool async = true;
  Tensors inputs, outputs;  // as torch knows them
  // The work that follows the operations, such as the copy back, waits for further operations. It
  // then runs on a Finisher, so that wait(timeout) and isCompleted() return in time.
  bool after_waits = false;
  // A thread that waits for this call comes after the copies that follow other operations of the
  // group, even if their Works have ended or are gone.
  bool after_all = false;
};

// Thread-safe.
class PendingWork final : public c10d::Work {
 public:
  // Runs after the operations, such as a copy to the caller's strides.
  using After = std::function<void()>;

  PendingWork(std::shared_ptr<GroupSession> session, int rank, const GroupCall& call,
              CallStream stream, std::uint64_t sequence, std::chrono::milliseconds timeout);

  // The operations have been started. `after` keeps the memory that they use. Once only. idle: it
  // does nothing else, so on the CPU it needs no state of the caller's thread, which is dear.
  void begin(Parts parts, After after, bool idle = false);

  // Whether all has been done. Drives nothing.
  bool isDone() const;

  // On a GPU: whether the results are in the caller's tensors, for any stream. Makes no callbacks:
  // they may take long.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // A timeout of 0 is none. One that passes leaves the operation under way. As with NCCL, the host
  // waits for a GPU only where a timeout is given. exception() and every later call tell of an
  // error that comes after wait().
  bool wait(std::chrono::milliseconds timeout) override;
  // Waits on the host until the operations have ended, and not for what follows them on a GPU.
  void wait_for_operations();
  // On the CPU there is no stream to make wait.
  void synchronize() override {
    if (stream_ || after_all_) wait(kNoTimeout);
  }
  void abort() override { session_->abort("Work.abort() was called"); }
  Tensors result() override { return outputs_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }
  std::uint64_t getCompletionKey() const override { return sequence_; }
  std::chrono::milliseconds getTimeout() const override { return timeout_; }
  int sourceRank() const override;

  // The owner of the future may sleep on it, which drives nothing: the background thread does.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  // Nobody has the work any more, but Backend::collectives_ may know of it for long.
  void release_resources() override;

 private:
  struct Countdown;

  // Until all is done, or the time is over: then it throws.
  void await_end(std::chrono::milliseconds timeout);
  // Returns when all has been enqueued on the GPU: order() then makes a stream wait for it. False
  // where only the end will do.
  bool join();
  // Drives until all operations have ended or the time is over. True: they have, and the caller
  // must claim.
  bool drive(std::chrono::steady_clock::time_point until);
  // Whether reached(part), which drives, is true of each. The caller must look afterwards whether
  // all have ended: nobody else is told then.
  template <class Reached>
  bool drive_each(const Reached& reached);

  // Only who has claimed the work calls one of these two, once.
  void finish_later() {
    session_->finish_later([this] { finish_now(); });
  }
  void finish_now();
  // Does what comes after the operations, once. On a GPU it is enqueued on this stream, which they
  // precede. With follow_mutex_ held.
  void follow(const std::optional<c10::Stream>& side);
  // This thread's current stream comes after what has been enqueued.
  void order();
  // Whether what follows the operations there has ended. A GPU that fails meanwhile is an error.
  bool all_on_gpu_has_ended();
  void mark_future();

  bool has_future() const;
  // The thread that has claimed the work finishes it. A future is marked then, too; its callbacks
  // may run.
  bool await_finish(std::chrono::steady_clock::time_point until);

  const std::shared_ptr<GroupSession> session_;
  Tensors outputs_;
  const CallStream stream_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const bool after_waits_;
  const bool after_all_;
  const std::shared_ptr<Countdown> countdown_;
  std::optional<at::ThreadLocalState> state_;  // of the caller; empty if nothing needs it
  bool idle_ = false;
  Parts parts_;
  c10::intrusive_ptr<PendingWork> itself_;  // until it is finished, also when nobody else holds it

  std::mutex follow_mutex_;  // before own_mutex_
  After after_;
  bool followed_ = false;
  std::exception_ptr follow_error_;

  mutable std::mutex own_mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::exception_ptr error_;
  SideMarks::Mark enqueued_;  // comes after what follows the operations on a GPU
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace rondo::python

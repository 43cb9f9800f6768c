// SPDX-License-Identifier: Apache-2.0
//
// Streams and the one thread that runs their work. Thread-safe. Callers are quiet.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "base/futex.h"
#include "contexts.h"
#include "hand.h"
#include "work.h"

// All fields are guarded by the executor's lock, except those that never change. Streams are never
// freed, so a handle that is used too late is recognized.
struct rondo::device::StreamObject {
  ContextHandle context = nullptr;
  unsigned number = 0, flags = 0;
  bool is_default = false;

  bool capturing = false, held = false, destroyed = false;
  std::deque<std::unique_ptr<fake::Work>> work;
  bool has_begun = false;   // a part of the first work has run
  bool is_running = false;  // the first work is running
  unsigned long enqueued = 0, ended = 0;
  std::unique_ptr<fake::Hand> hand;  // the executor makes and destroys it
  // The result of the part that has just run.
  bool has_ended = false;
  fake::Status status = 0;
  // settle() reads this; the hand stores it after each work.
  std::atomic<unsigned long> last_end{0};
};

namespace fake {

using rondo::device::StreamHandle;

class Executor {
 public:
  Executor();

  StreamHandle add_stream(ContextHandle context, unsigned flags, bool is_default);
  Status destroy_stream(StreamHandle stream);
  // Whether it is the handle of a stream that lives.
  bool is_stream(StreamHandle stream);

  // Starts the thread when it is needed first. TSan sees that what the caller did before comes
  // before the work.
  Status enqueue(StreamHandle stream, std::unique_ptr<Work> work);
  // 0, or the status of enqueueing now: the stream captures.
  Status capture_status(StreamHandle stream, bool* is_capturing);

  // Waits until the work that has been enqueued so far has ended, or that of one context. Aborts
  // after hang_s. TSan sees no order. function: the caller, for the message.
  void drain(const char* function, ContextHandle context);
  // Does the same for all, and TSan sees that the work happens before the return.
  void settle();

  // Null: all streams. TSan sees that work that has run comes before the return of hold(), and work
  // that runs later after the call of let_go().
  void hold(StreamHandle stream);
  void let_go(StreamHandle stream);
  void capture(StreamHandle stream, bool on);
  void break_context(ContextHandle context, Status status);
  void fail_work(unsigned nth, Status status);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void run_one(StreamHandle stream);
  void see_all_work();
  void end_first(StreamHandle stream);
  void make_sticky(ContextHandle context, Status status);
  void drop_work(ContextHandle context, Status status);
  StreamHandle choose(Clock::time_point* next);
  Clock::time_point draw_start();
  bool start_thread();
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::deque<rondo::device::StreamObject> streams_;
  std::vector<StreamHandle> live_;  // those not destroyed, and destroyed ones with work
  struct Break {
    ContextHandle context;
    Status status;
  };
  std::vector<Break> breaks_;
  bool all_held_ = false, has_thread_ = false;
  unsigned work_until_failure_ = 0;
  Status work_failure_ = 0;
  std::atomic<unsigned> let_go_{0};             // each work reads what let_go() stores
  rondo::base::WakeWord wanted_{0}, ended_{0};  // something is to do, something has ended
};
Executor& executor();

// The stream that a handle of the API names, with the default streams; null for none.
StreamHandle stream_of(StreamHandle handle, ContextHandle context);

}  // namespace fake

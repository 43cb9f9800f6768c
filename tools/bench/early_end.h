// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/event.h"
#include "tools/measure/conditions.h"
#include "tools/ranks/signals.h"

namespace rondo::tools {

// Ends a run early: when SIGINT, SIGTERM or SIGHUP comes, or when the reader of the standard output
// has closed it. Ranks then stop together after the iteration that they are in. If that takes
// longer than 0.8 seconds, the communicator is aborted, but not while they sum up. A signal kills
// the process when there is no communicator yet, because nothing has been measured, and when a
// second one comes. Signals within a second count as one: GNU timeout sends one to a process and to
// its group, and a launcher may send SIGTERM to ranks that a terminal has sent SIGINT.
//
// Make it in the main thread, before other threads. Its functions are thread-safe.
class EarlyEnd {
 public:
  // watches_output: this process writes the standard output of the run. Without a descriptor or a
  // thread for it, it does nothing: signals end the process at once, and connect(), which needs
  // more of both, tells all ranks.
  explicit EarlyEnd(bool watches_output);
  EarlyEnd(const EarlyEnd&) = delete;
  EarlyEnd& operator=(const EarlyEnd&) = delete;
  ~EarlyEnd();

  Stop& stop() noexcept { return stop_; }
  // Sets the communicator to abort when stopping takes too long; null: none. Withdraw it before the
  // communicator is destroyed. Returns the one that was set before.
  Communicator* guard(Communicator* communicator);
  // The signal that came; 0: none.
  int signal() const noexcept { return signal_; }
  // Waits for a signal, at most this time. Returns whether one has come.
  bool await_signal(std::chrono::milliseconds time);
  bool output_is_closed() const noexcept { return closed_; }
  // Whether one of both has come.
  bool has_come() const noexcept { return signal_ != 0 || closed_; }

 private:
  void run();
  bool wait(int milliseconds);
  void take_signal();
  void abort();

  std::optional<SignalQueue> signals_;
  base::Event quit_;
  const bool watches_output_;
  Stop stop_;
  std::atomic<int> signal_ = 0;
  std::chrono::steady_clock::time_point signal_at_;
  std::atomic<bool> closed_ = false;
  std::mutex mutex_;
  std::condition_variable came_;     // signal_
  Communicator* guarded_ = nullptr;  // under mutex_
  std::thread thread_;
};

// "ended by SIGTERM"; of SIGPIPE that nobody reads the output.
std::string describe_end(int signal);

// Guards a communicator until it is destroyed, then the one before it again.
class Guarded {
 public:
  Guarded(EarlyEnd& early_end, Communicator& communicator)
      : early_end_(early_end), before_(early_end.guard(&communicator)) {}
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { early_end_.guard(before_); }

 private:
  EarlyEnd& early_end_;
  Communicator* const before_;
};

}  // namespace rondo::tools

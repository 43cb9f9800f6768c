// SPDX-License-Identifier: Apache-2.0
//
// Handles Ctrl-C while the main thread sleeps where it cannot look for signals: in a future of
// torch, as in the backward pass of DDP, or in a batch norm layer. Only the end of the operation
// wakes it.
#pragma once

#include <semaphore.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "python/core/forks.h"
#include "python/core/signals.h"

namespace rondo::python {

// A thread that calls end_operations() after Ctrl-C, if Python has not run its handler within a
// tenth of a second and would raise KeyboardInterrupt. A handler of SIGINT in front of Python's
// tells this thread. A program with a handler of its own is left alone. Thread-safe.
class Interrupts {
 public:
  // To be called before each such sleep: Python may have set its handler again since the last one.
  static void watch(void (*end_operations)()) {
    of_this_process<Interrupts>().install(end_operations);
  }
  // To be called at the end of the process.
  static void stop() {
    Interrupts& own = of_this_process<Interrupts>();
    std::thread thread;
    {
      const std::lock_guard lock(own.mutex_);
      own.stopping_ = true;
      thread.swap(own.thread_);
    }
    own.changed_.notify_all();
    ::sem_post(&came().wake);
    if (thread.joinable()) thread.join();
  }

 private:
  static constexpr std::chrono::milliseconds patience{100};
  // All that the handler of the signal touches.
  struct Came {
    Came() { ::sem_init(&wake, 0, 0); }
    sem_t wake;
    std::atomic<unsigned> number{0};
    std::atomic<void (*)(int)> next{nullptr};
  };
  static Came& came() {
    static Came one;
    return one;
  }
  static void on_signal(int signal) {
    const int error = errno;
    came().number.fetch_add(1);
    ::sem_post(&came().wake);
    came().next.load()(signal);
    errno = error;
  }

  void install(void (*end_operations)()) {
    struct sigaction now {};
    if (::sigaction(SIGINT, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 ||
        now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)
      return;
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (!thread_.joinable()) {
      python_saw_ = came().number.load();  // a forked child counts on from its parent's
      thread_ = std::thread([this, end_operations] { run(end_operations); });
    }
    // One in front of this one may call it. In front of that it would be called without end.
    if (now.sa_handler == &on_signal ||
        (came().next.load() && now.sa_handler != came().next.load()))
      return;
    came().next.store(std::exchange(now.sa_handler, &on_signal));
    ::sigaction(SIGINT, &now, nullptr);
  }

  void run(void (*end_operations)()) {
    while (true) {
      while (::sem_wait(&came().wake) != 0) {
      }
      const unsigned number = came().number.load();
      ::Py_AddPendingCall(&python_runs, this);
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, patience, [&] { return stopping_ || python_saw_ >= number; });
      if (stopping_) return;
      const bool sleeps = python_saw_ < number;
      lock.unlock();
      if (sleeps && raises()) end_operations();
    }
  }
  // Python calls it on the main thread when it runs the handlers of signals.
  static int python_runs(void* self) {
    Interrupts& own = *static_cast<Interrupts*>(self);
    {
      const std::lock_guard lock(own.mutex_);
      own.python_saw_ = came().number.load();
    }
    own.changed_.notify_all();
    return 0;
  }
  static bool raises() {
    const py::gil_scoped_acquire locked;
    const auto signal = py::module_::import("signal");
    return signal.attr("getsignal")(SIGINT).is(signal.attr("default_int_handler"));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  unsigned python_saw_ = 0;
  bool stopping_ = false;
};

}  // namespace rondo::python

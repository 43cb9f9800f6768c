// SPDX-License-Identifier: Apache-2.0
//
// Decides which thread makes progress, how long it spins, and when it sleeps. Whoever waits drives.
// A background thread drives only while operations are pending and nobody waits. One thread at a
// time is the driver. It holds the engine's lock for one pass at a time, and never while it sleeps.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/thread_annotations.h"
#include "collectives/engine/operation.h"

namespace rondo::engine {

// The lock that guards an engine and all its parts. Thread-safe. It counts the threads that want
// it, so that a driver that spins lets them in.
class RONDO_CAPABILITY("engine lock") EngineLock {
 public:
  EngineLock() = default;
  EngineLock(const EngineLock&) = delete;
  EngineLock& operator=(const EngineLock&) = delete;

  void lock() RONDO_ACQUIRE() {
    if (mutex_.try_lock()) return;
    wanting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    wanting_.fetch_sub(1, std::memory_order_relaxed);
  }
  // The driver takes it back: it need not be let in.
  void lock_again() RONDO_ACQUIRE() { mutex_.lock(); }
  void unlock() RONDO_RELEASE() { mutex_.unlock(); }
  bool wanted() const noexcept { return wanting_.load(std::memory_order_relaxed) > 0; }
  // Tells the analysis that a caller which it does not see, such as a transport, holds the lock.
  void assert_held() const noexcept RONDO_ASSERT_CAPABILITY(this) {}

 private:
  std::mutex mutex_;
  std::atomic<int> wanting_{0};
};

// Descriptors to sleep on. What does not fit is not waited for: the driver then sees it late.
class WakeDescriptors {
 public:
  void add(int descriptor) noexcept {
    if (count_ < polled_.size()) polled_[count_++] = {descriptor, POLLIN, 0};
  }
  // True when the first one is readable.
  bool wait(int timeout) noexcept {
    ::poll(polled_.data(), count_, timeout);
    return polled_[0].revents != 0;
  }

 private:
  std::array<pollfd, 8> polled_;
  std::size_t count_ = 0;
};

// The engine as its driver sees it. Every call is made under the driver's lock.
class Driven {
 public:
  virtual ~Driven() = default;
  // Moves what can be moved. True when anything was.
  virtual bool pass() = 0;
  // Deadlines and the like. next_check() says when to come; a little later is no harm.
  virtual void check_time(base::TimePoint now) = 0;
  virtual base::TimePoint next_check() const noexcept = 0;
  // Makes callbacks and reports, meanwhile without the lock.
  virtual void deliver() = 0;
  virtual bool pending() const noexcept = 0;
  // Adds what to sleep on. False: there is work, do not sleep.
  virtual bool prepare_sleep(WakeDescriptors& descriptors) = 0;
};

// Threads: wait() and mutex() from any thread; the rest says itself that the lock must be held.
// Failures: the constructor throws Error(system). Later nothing fails: a lost wake-up costs at most
// a second, since every sleep has an end.
class Driver {
 public:
  // crowded: ranks outnumber the cores of this host, so yield and do not spin.
  Driver(Driven& driven, bool crowded);
  ~Driver();  // after stop()
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  EngineLock& mutex() const noexcept RONDO_RETURN_CAPABILITY(mutex_) { return mutex_; }

  // Without it only threads that wait make progress.
  void start_background();
  // The background thread ends soon. join() without the lock waits for that.
  void stop() RONDO_REQUIRES(mutex_);
  void join() RONDO_EXCLUDES(mutex_);

  // Makes progress until the operation has ended or the time is over.
  void wait(const Operation& operation, base::TimePoint until) RONDO_REQUIRES(mutex_);

  // An operation runs, or has just ended. `running`: a thread that sleeps must see its deadline.
  void operation_started(bool running) RONDO_REQUIRES(mutex_);
  void operation_ended() RONDO_REQUIRES(mutex_);
  // A thread that sleeps must look at the time again.
  void wake_sleeper() RONDO_REQUIRES(mutex_);
  // Operations are pending and this thread goes its own way: somebody else must look after them,
  // and see what this thread has seen, because a transport tells only once that there is something.
  void hand_over() RONDO_REQUIRES(mutex_);

 private:
  bool drive(const Operation* operation, base::TimePoint until) RONDO_REQUIRES(mutex_);
  bool wanted(const Operation* operation) const RONDO_REQUIRES(mutex_);
  bool sleep(base::TimePoint until, bool on_behalf_of_nobody) RONDO_REQUIRES(mutex_);
  void let_in() RONDO_REQUIRES(mutex_);
  void give_way(base::TimePoint now) RONDO_REQUIRES(mutex_);
  void tell_waiters() RONDO_REQUIRES(mutex_);
  void wait_for_news(base::TimePoint until) RONDO_REQUIRES(mutex_);
  void arm_background(nanoseconds delay) RONDO_REQUIRES(mutex_);
  void set_timer(nanoseconds delay) noexcept;
  void wake() noexcept;
  void run_background();

  mutable EngineLock mutex_;
  Driven& driven_;
  const bool crowded_;
  int waiters_ RONDO_GUARDED_BY(mutex_) = 0;
  int sleeping_ RONDO_GUARDED_BY(mutex_) = 0;
  bool driving_ RONDO_GUARDED_BY(mutex_) = false;
  bool stopping_ RONDO_GUARDED_BY(mutex_) = false;
  bool armed_ RONDO_GUARDED_BY(mutex_) = false;  // the timer
  // Other programs want the cores until then: do not spin.
  base::TimePoint contended_until_ RONDO_GUARDED_BY(mutex_){};

  // Waiters that do not drive sleep here, not on the engine's lock: a driver would never let them
  // back in. Taken under the engine's lock, never the other way round.
  base::Mutex news_mutex_;
  std::condition_variable news_;
  std::uint64_t news_count_ RONDO_GUARDED_BY(news_mutex_) = 0;

  base::FileDescriptor wake_, timer_;
  std::thread background_;
};

}  // namespace rondo::engine

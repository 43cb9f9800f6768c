// SPDX-License-Identifier: Apache-2.0
//
// Decides which thread makes progress. waiting.h decides how that thread waits. A thread that waits
// for an operation drives. The background thread drives only while operations are pending and
// nobody waits. One thread at a time is the driver. It holds the engine's lock for one pass at a
// time, and never while it sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread_annotations.h"
#include "collectives/engine/alarm.h"
#include "collectives/engine/background_delay.h"
#include "collectives/engine/waiting.h"
#include "collectives/operation/bell.h"
#include "collectives/operation/operation.h"

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
  // For the driver, which takes the lock back: it does not count as a thread that wants it.
  void lock_again() RONDO_ACQUIRE() { mutex_.lock(); }
  void unlock() RONDO_RELEASE() { mutex_.unlock(); }
  bool wanted() const noexcept { return wanting_.load(std::memory_order_relaxed) > 0; }
  // Tells the analysis that a caller which it does not see, such as a transport, holds the lock.
  void assert_held() const noexcept RONDO_ASSERT_CAPABILITY(this) {}

 private:
  std::mutex mutex_;
  std::atomic<int> wanting_{0};
};

// The engine as its driver sees it. Every call is made under the driver's lock.
class Driven {
 public:
  virtual ~Driven() = default;
  // Moves what can be moved without blocking. True when anything was.
  virtual bool pass() = 0;
  // Does only what this operation waits for most likely, if that is much cheaper than a pass.
  virtual bool look_for(const operation::Operation&) { return false; }
  // Looks at deadlines, stalls and lost links. next_check() says when to call it; a little later
  // does no harm.
  virtual void check_time(base::TimePoint now) = 0;
  virtual base::TimePoint next_check() const noexcept = 0;
  // The driver is about to yield or sleep, perhaps until an operation has ended.
  virtual void pausing() noexcept = 0;
  // Makes callbacks and reports. The lock is released meanwhile.
  virtual void deliver() = 0;
  virtual bool pending() const noexcept = 0;
  // The ranks on the calling thread's core. Tells the others that this rank waits there.
  virtual Waiting::Company company() = 0;
  // Adds the descriptors to sleep on. False: there is work, do not sleep.
  virtual bool prepare_sleep(operation::WakeDescriptors& descriptors) = 0;
};

// Threads: any thread may call mutex() and wait(); wait() releases the lock while it sleeps. The
// owner alone calls start_background() and join(). RONDO_REQUIRES says where the lock must be held.
// Failures: the constructor and start_background() throw Error(system). Later nothing fails: a lost
// wake-up of the driver costs at most a second, since each of its sleeps has an end.
class Driver {
 public:
  // waiting: decides what this driver does while nothing moves. word: see Bell.
  Driver(Driven& driven, const Waiting& waiting, base::WakeWord* word = nullptr);
  ~Driver();  // after stop()
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  EngineLock& mutex() const noexcept RONDO_RETURN_CAPABILITY(mutex_) { return mutex_; }

  // Without the background thread only threads that wait drive. Once.
  void start_background();
  // Tells the background thread to end. join(), called without the lock, waits for that.
  void stop() RONDO_REQUIRES(mutex_);
  void join() RONDO_EXCLUDES(mutex_);

  // A thread waits until an operation has ended, or is enqueued.
  struct Goal {
    const operation::Operation& operation;
    bool enqueued = false;  // Operation::enqueued() is enough
    bool reached() const noexcept {
      return operation.state() != operation::Operation::State::running ||
             (enqueued && operation.enqueued());
    }
  };
  // Drives, or sleeps while another thread drives, until the goal is reached or the time is over.
  void wait(const Goal& goal, base::TimePoint until) RONDO_REQUIRES(mutex_);

  struct Started {
    bool running = false;  // it has not ended yet: a driver that sleeps must see its deadline
    // The start has moved something, so there may be more to move: a driver that is about to sleep
    // makes a pass first.
    bool moved = false;
    bool unattended = false;  // nobody will wait soon: the background thread drives at once
  };
  // To be called after each start and after each end of an operation.
  void operation_started(const Started& started) RONDO_REQUIRES(mutex_);
  void operation_ended() RONDO_REQUIRES(mutex_);
  // Operation::enqueued() has become true of an operation.
  void operation_enqueued() RONDO_REQUIRES(mutex_) { tell_waiters(); }
  // Wakes a driver that sleeps, so that it looks at the time again.
  void wake_sleeper() RONDO_REQUIRES(mutex_);
  // Wakes a driver that sleeps, without the lock.
  operation::Bell& bell() noexcept { return bell_; }
  // To be called by a thread that stops driving while operations are pending. Another thread must
  // soon drive: a transport tells only once that something has come, and this thread was told.
  void hand_over() RONDO_REQUIRES(mutex_);

 private:
  bool drive(const Goal* goal, base::TimePoint until) RONDO_REQUIRES(mutex_);
  bool wanted(const Goal* goal) const RONDO_REQUIRES(mutex_);
  bool sleep(base::TimePoint until, bool on_behalf_of_nobody) RONDO_REQUIRES(mutex_);
  void look_for(const Goal& goal) RONDO_REQUIRES(mutex_);
  void let_in() RONDO_REQUIRES(mutex_);
  void give_way(base::TimePoint now) RONDO_REQUIRES(mutex_);
  void tell_waiters() RONDO_REQUIRES(mutex_);
  void wait_for_news(base::TimePoint until) RONDO_REQUIRES(mutex_);
  void arm_background(nanoseconds delay) RONDO_REQUIRES(mutex_);
  void wake_background() RONDO_REQUIRES(mutex_);
  void run_background();

  mutable EngineLock mutex_;
  Driven& driven_;
  Waiting waiting_ RONDO_GUARDED_BY(mutex_);
  int waiters_ RONDO_GUARDED_BY(mutex_) = 0;
  int idle_waiters_ RONDO_GUARDED_BY(mutex_) = 0;  // they do not drive
  int sleeping_ RONDO_GUARDED_BY(mutex_) = 0;
  int spins_left_ RONDO_GUARDED_BY(mutex_) = 0;
  bool driving_ RONDO_GUARDED_BY(mutex_) = false;
  bool slept_in_vain_ RONDO_GUARDED_BY(mutex_) = false;  // nobody has rung during the last sleep
  bool pass_due_ RONDO_GUARDED_BY(mutex_) =
      false;  // a start has moved something since the last pass
  bool stopping_ RONDO_GUARDED_BY(mutex_) = false;
  bool background_drives_ RONDO_GUARDED_BY(mutex_) = false;  // or sleeps until something comes
  bool look_due_ RONDO_GUARDED_BY(mutex_) = false;           // the alarm has been set to now
  bool unattended_ RONDO_GUARDED_BY(mutex_) = false;  // one that is pending may be unattended
  BackgroundDelay background_delay_ RONDO_GUARDED_BY(mutex_);

  // Waiters that do not drive sleep on this mutex. If they slept on the engine's lock, the driver
  // would never let them back in. Lock order: the engine's lock first, then this one.
  base::Mutex news_mutex_;
  std::condition_variable news_;
  std::uint64_t news_count_ RONDO_GUARDED_BY(news_mutex_) = 0;

  // A driver sleeps on the bell, and the background thread, while it does not drive, on the alarm.
  operation::Bell bell_;
  Alarm alarm_;
  std::thread background_;
};

}  // namespace rondo::engine

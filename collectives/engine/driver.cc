// SPDX-License-Identifier: Apache-2.0
//
// The loop of a driver: a pass, the callbacks of what has ended, and a chance for threads that want
// the lock. Most turns read no clock, because a look takes about as long as a line needs between
// two cores. Where nothing moves, waiting.h says whether to spin, yield or sleep.
#include "collectives/engine/driver.h"

#include <sched.h>

#include <algorithm>

#include "base/processor.h"
#include "base/thread.h"

namespace rondo::engine {

namespace {

// A deadline is seen two checks after the start at the latest. Over tcp a pass over large frames
// takes 50 us and more.
constexpr int passes_between_time_checks = 32;
// If a wait ends after fewer spins, the next wait goes on counting: a small operation takes not
// much longer than a look at the clock.
constexpr int spins_between_time_checks = 8;
// A pass looks at every lane and peer. Between two passes a thread that waits looks so often for
// what it waits for.
constexpr int looks_between_passes = 16;

}  // namespace

Driver::Driver(Driven& driven, const Waiting& waiting, base::WakeWord* word)
    : driven_(driven), waiting_(waiting), bell_(word) {}

Driver::~Driver() {
  join();
}

void Driver::start_background() {
  if (!background_.joinable())
    background_ = base::start_thread("rondo-engine", [this] { run_background(); });
}

void Driver::stop() {
  stopping_ = true;
  wake_background();
  bell_.ring();
}

void Driver::join() {
  if (background_.joinable()) background_.join();
}

void Driver::wait(const Goal& goal, base::TimePoint until) {
  ++waiters_;
  while (!goal.reached()) {
    if (driving_) {
      wait_for_news(until);
    } else {
      driving_ = true;
      drive(&goal, until);
      driving_ = false;
    }
    // Read last: most waits end with their operation and need no clock.
    if (!goal.reached() && base::Clock::now() >= until) break;
  }
  --waiters_;
  tell_waiters();
  if (waiters_ == 0 && driven_.pending()) hand_over();
}

bool Driver::wanted(const Goal* goal) const {
  return goal != nullptr ? !goal->reached() : driven_.pending() && waiters_ == 0 && !stopping_;
}

// Drives until the goal is reached or the time is over. Without a goal, for the background thread:
// until somebody waits or nothing is pending. False when another thread has taken the driver's role
// meanwhile.
bool Driver::drive(const Goal* goal, base::TimePoint until) {
  int passes = 0;
  waiting_.moved();
  while (wanted(goal)) {
    pass_due_ = false;
    const bool moved = driven_.pass();
    driven_.deliver();
    if (!wanted(goal)) return true;
    let_in();
    if (moved) {
      waiting_.moved();
      if (++passes % passes_between_time_checks != 0) continue;
    } else if (spins_left_ > 0) {
      --spins_left_;
      if (goal != nullptr) look_for(*goal);
      base::pause_processor();
      continue;
    }
    const base::TimePoint now = base::Clock::now();
    driven_.check_time(now);
    driven_.deliver();
    if (now >= until || !wanted(goal)) return true;
    if (moved) continue;
    switch (waiting_.next(now, driven_.company())) {
      case Waiting::Next::look:
        base::pause_processor();
        break;
      case Waiting::Next::spin:
        spins_left_ = spins_between_time_checks;
        base::pause_processor();
        break;
      case Waiting::Next::yield:
        give_way(now);
        break;
      case Waiting::Next::sleep:
        if (!sleep(until, goal == nullptr)) return false;
        // After a sleep that ended by time alone, the same wait goes on: without a spin.
        if (!slept_in_vain_) waiting_.moved();
    }
  }
  return true;
}

void Driver::look_for(const Goal& goal) {
  for (int i = 0; i < looks_between_passes; ++i) {
    if (driven_.look_for(goal.operation)) {
      waiting_.moved();
      return driven_.deliver();
    }
    base::pause_processor();
  }
}

void Driver::give_way(base::TimePoint now) {
  driven_.pausing();
  mutex_.unlock();
  ::sched_yield();
  mutex_.lock_again();
  waiting_.yielded(base::Clock::now() - now);
}

void Driver::let_in() {
  for (int i = 0; i < 100 && mutex_.wanted(); ++i) {
    mutex_.unlock();
    ::sched_yield();
    mutex_.lock_again();
  }
}

// False when a thread that waits has taken over from the background thread meanwhile.
bool Driver::sleep(base::TimePoint until, bool on_behalf_of_nobody) {
  slept_in_vain_ = false;
  if (pass_due_) return true;
  const std::uint32_t seen = bell_.seen();
  operation::WakeDescriptors descriptors;
  bell_.add_to(descriptors);
  if (!driven_.prepare_sleep(descriptors)) {
    driven_.deliver();
    return true;
  }
  driven_.pausing();
  const int timeout = base::poll_timeout(base::Clock::now(), std::min(until, driven_.next_check()));
  ++sleeping_;
  // A thread that comes to wait may drive while the background thread sleeps.
  if (on_behalf_of_nobody) driving_ = false;
  mutex_.unlock();
  const bool woken = bell_.sleep(descriptors, seen, timeout);
  mutex_.lock_again();
  --sleeping_;
  slept_in_vain_ = bell_.is_silent_since(seen);
  // The last sleeper takes the wake-up away, when the others have seen it.
  if (sleeping_ == 0 && woken) bell_.clear();
  if (!on_behalf_of_nobody) return true;
  if (driving_ || waiters_ > 0) return false;
  driving_ = true;
  return true;
}

void Driver::tell_waiters() {
  if (idle_waiters_ == 0) return;
  const base::Locked lock(news_mutex_);
  ++news_count_;
  news_.notify_all();
}

void Driver::wait_for_news(base::TimePoint until) {
  until = std::min(until, base::Clock::now() + std::chrono::seconds{1});
  news_mutex_.lock();
  const std::uint64_t seen = news_count_;
  ++idle_waiters_;
  mutex_.unlock();
  {
    std::unique_lock news_lock(news_mutex_.standard(), std::adopt_lock);
    while (news_count_ == seen && news_.wait_until(news_lock, until) != std::cv_status::timeout) {
    }
    news_lock.release();
  }
  news_mutex_.unlock();
  mutex_.lock();
  --idle_waiters_;
}

void Driver::operation_started(const Started& started) {
  pass_due_ = pass_due_ || started.moved;
  // A driver that sleeps has seen neither what the start has read nor the new deadline.
  if (started.running) wake_sleeper();
  const bool unattended = started.running && started.unattended;
  unattended_ = unattended_ || unattended;
  if (!driven_.pending() || waiters_ > 0) return;
  if (unattended)
    wake_background();
  else
    arm_background(background_delay_.after_start());
}

void Driver::operation_ended() {
  if (unattended_) unattended_ = driven_.pending();
  tell_waiters();
  wake_sleeper();
}

void Driver::wake_sleeper() {
  if (sleeping_ > 0) bell_.ring();
}

void Driver::hand_over() {
  wake_sleeper();
  // Awake now, it goes on. A time that is set without an alarm would keep later ones from being
  // set.
  if (background_drives_) return;
  if (unattended_ || background_delay_.set(nanoseconds{1})) wake_background();
}

// The background thread wakes only after the delay: a caller that starts an operation and waits at
// once must not pay for that.
void Driver::arm_background(nanoseconds delay) {
  if (background_.joinable() && !look_due_ && background_delay_.set(delay)) alarm_.set(delay);
}

// Nothing is raised while the background thread drives: it sees what is new.
void Driver::wake_background() {
  if (!background_.joinable() || look_due_ || background_drives_) return;
  look_due_ = true;
  alarm_.set_now();
}

void Driver::run_background() {
  mutex_.lock();
  while (!stopping_) {
    if (driven_.pending() && waiters_ == 0 && !driving_) {
      driving_ = background_drives_ = true;
      if (drive(nullptr, base::TimePoint::max())) driving_ = false;
      background_drives_ = false;
      tell_waiters();
      continue;
    }
    mutex_.unlock();
    alarm_.wait();
    mutex_.lock();
    look_due_ = false;
    background_delay_.looked(driven_.pending() && waiters_ == 0);
  }
  mutex_.unlock();
}

}  // namespace rondo::engine

// SPDX-License-Identifier: Apache-2.0
//
// Who drives, and how long it spins before it sleeps.
#include <poll.h>
#include <sched.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>

#include <rondo/error.h>

#include "base/pause.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/guard.h"

namespace rondo::engine {

namespace {

constexpr microseconds spin_time{1000};
// With a core for every rank an answer comes within this time, unless the machine has other work
// too: then yield.
constexpr microseconds pause_time{20};
// While it has, what another core answers at once is still worth a look.
constexpr microseconds short_pause_time{4};
// Where ranks outnumber cores a yield is for them, and only a whole time slice tells of a program
// that computes.
constexpr microseconds long_yield{1000};
constexpr milliseconds contention_time{20};
constexpr int passes_between_time_checks = 256;
constexpr std::size_t most_descriptors = 8;

}  // namespace

bool Engine::wait(Operation& operation, base::TimePoint until) {
  if (operation.state() != Operation::State::running) return true;
  if (process_ != base::process_generation())
    throw Error(Errc::unsupported, std::string(base::used_in_child));
  std::unique_lock lock = Guard::acquire(*this);
  ++waiters_;
  while (operation.state() == Operation::State::running && base::Clock::now() < until) {
    if (driving_) {
      wait_for_news(lock, until);
      continue;
    }
    driving_ = true;
    drive(lock, &operation, until);
    driving_ = false;
  }
  --waiters_;
  tell_waiters();
  if (waiters_ == 0 && pending_ > 0) move_on();
  return operation.state() != Operation::State::running;
}

// Without an operation: on behalf of nobody, until somebody waits or nothing is pending. False when
// another thread has taken the driver's role meanwhile.
bool Engine::drive(std::unique_lock<std::mutex>& lock, const Operation* operation,
                   base::TimePoint until) {
  int idle = 0, passes = 0;
  base::TimePoint idle_since;
  const auto wanted = [&] {
    return operation != nullptr ? operation->state() == Operation::State::running
                                : pending_ > 0 && waiters_ == 0 && !stopping_;
  };
  while (wanted()) {
    const bool moved = try_pass();
    deliver(lock);
    if (!wanted()) return true;
    let_in(lock);
    if (moved) idle = 0;
    if (moved && ++passes % passes_between_time_checks != 0) continue;
    const base::TimePoint now = base::Clock::now();
    check_time(now);
    deliver(lock);
    if (now >= until) return true;
    if (moved) continue;
    if (idle++ == 0) idle_since = now;
    const bool contended = now < contended_until_;
    if (!options_.crowded && now - idle_since <= (contended ? short_pause_time : pause_time)) {
      base::pause_processor();
    } else if (!contended && now - idle_since < spin_time) {
      give_way(lock, now);
    } else {
      if (!sleep(lock, until, operation == nullptr)) return false;
      idle = 0;
    }
  }
  return true;
}

// A yield that takes long has handed the core to somebody else, who computes or spins as this rank
// does. Then sleeping is better: whoever sleeps and is woken gets its core back at once, whoever
// yields waits for the end of a time slice, and newer kernels let it wait for one at every yield.
// With a core for every rank of this host nobody else should have been there at all.
void Engine::give_way(std::unique_lock<std::mutex>& lock, base::TimePoint now) {
  lock.unlock();
  ::sched_yield();
  lock.lock();
  const base::TimePoint back = base::Clock::now();
  if (back - now > (options_.crowded ? long_yield : pause_time))
    contended_until_ = back + contention_time;
}

void Engine::let_in(std::unique_lock<std::mutex>& lock) {
  for (int i = 0; i < 100 && wanting_.load(std::memory_order_relaxed) > 0; ++i) {
    lock.unlock();
    ::sched_yield();
    lock.lock();
  }
}

// False when a thread that waits has taken over from the background thread meanwhile.
bool Engine::sleep(std::unique_lock<std::mutex>& lock, base::TimePoint until,
                   bool on_behalf_of_nobody) {
  std::array<pollfd, most_descriptors> descriptors;
  std::size_t count = 0;
  descriptors[count++] = {wake_.get(), POLLIN, 0};
  if (!suspicion_) {
    for (transports::Transport* transport : transports_) {
      if (!transport->prepare_sleep()) return true;
      if (count < descriptors.size())
        descriptors[count++] = {transport->wait_descriptor(), POLLIN, 0};
    }
    // From now on others wake this rank; what they stored before must be seen here.
    bool moved = false;
    try {
      moved = pass_direct();
    } catch (const std::exception& error) {
      give_up(error);
    }
    if (moved || !reports_.empty()) {
      deliver(lock);
      return true;
    }
  }
  const int timeout = base::poll_timeout(base::Clock::now(), std::min(until, next_time()));
  ++sleeping_;
  if (on_behalf_of_nobody) driving_ = false;
  lock.unlock();
  ::poll(descriptors.data(), count, timeout);
  lock.lock();
  --sleeping_;
  if (sleeping_ == 0 && descriptors[0].revents != 0) {
    std::uint64_t signals = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &signals, sizeof signals);
  }
  if (!on_behalf_of_nobody) return true;
  if (driving_ || waiters_ > 0) return false;
  driving_ = true;
  return true;
}

void Engine::tell_waiters() {
  if (waiters_ == 0) return;
  const std::lock_guard lock(news_mutex_);
  ++news_count_;
  news_.notify_all();
}

void Engine::wait_for_news(std::unique_lock<std::mutex>& lock, base::TimePoint until) {
  std::unique_lock news_lock(news_mutex_);
  const std::uint64_t seen = news_count_;
  lock.unlock();
  news_.wait_until(news_lock, std::min(until, base::Clock::now() + std::chrono::seconds{1}),
                   [&] { return news_count_ != seen; });
  news_lock.unlock();
  lock = Guard::acquire(*this);
}

// Operations are pending and this thread goes its own way: somebody else must look after them, and
// see what this thread has seen, because a transport tells only once that there is something.
void Engine::move_on() {
  if (sleeping_ > 0) wake();
  arm_background(nanoseconds{1});
}

void Engine::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = ::write(wake_.get(), &one, sizeof one);
}

// A caller that starts and then waits at once should not pay for another thread's waking: the
// background thread gets up a little later.
void Engine::arm_background(nanoseconds delay) {
  if (armed_ || !background_.joinable()) return;
  armed_ = true;
  set_timer(delay);
}

void Engine::set_timer(nanoseconds delay) noexcept {
  const itimerspec time{{0, 0}, {0, delay.count()}};
  ::timerfd_settime(timer_.get(), 0, &time, nullptr);
}

void Engine::background() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (pending_ > 0 && waiters_ == 0 && !driving_) {
      driving_ = true;
      if (drive(lock, nullptr, base::TimePoint::max())) driving_ = false;
      tell_waiters();
      continue;
    }
    lock.unlock();
    std::uint64_t expirations = 0;
    [[maybe_unused]] const auto got = ::read(timer_.get(), &expirations, sizeof expirations);
    lock.lock();
    armed_ = false;
  }
}

void Engine::stop() {
  {
    std::unique_lock lock = Guard::acquire(*this);
    stopping_ = true;
    if (!failure_)
      adopt(
          {Errc::aborted, "rank " + std::to_string(options_.rank) + " destroyed its communicator"});
    set_timer(nanoseconds{1});
    wake();
    deliver(lock);
  }
  if (background_.joinable()) background_.join();
}

}  // namespace rondo::engine

// SPDX-License-Identifier: Apache-2.0
//
// The communicator of a process group, with what must happen around its life: nobody is inside when
// it goes, errors become torch's, and works for which nobody waits are finished somewhere.
#pragma once

#include <pthread.h>
#include <rondo/communicator.h>
#include <rondo/error.h>

#include <torch/csrc/distributed/c10d/exception.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "python/torch/norms.h"

namespace rondo::python {

// How often this process is a forked child. A child has none of its parent's threads, and locks of
// the parent may be held there for ever.
inline std::atomic<unsigned>& forks() {
  static std::atomic<unsigned> count{0};
  return count;
}
inline void watch_forks() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ++forks(); });
  static_cast<void>(registered);
}

// Threads that finish works: they copy results, mark futures and make callbacks, which may block on
// other works of the group. So a thread is added when all of them are busy, up to `most`.
// Thread-safe.
class Finishers {
 public:
  using Task = std::function<void()>;
  static constexpr std::size_t most = 64;

  Finishers() = default;
  Finishers(const Finishers&) = delete;
  Finishers& operator=(const Finishers&) = delete;
  ~Finishers() { stop(); }

  // To be called before the first task. Throws std::system_error if no thread can be made.
  void prepare() {
    const std::lock_guard lock(shared_->mutex);
    if (threads_.empty() && !shared_->stopping) add_thread();
  }
  // After stop() the task runs at once.
  void add(Task task) {
    std::unique_lock lock(shared_->mutex);
    if (shared_->stopping) {
      lock.unlock();
      return task();
    }
    shared_->tasks.push_back(std::move(task));
    if (shared_->idle >= shared_->tasks.size() || threads_.size() == most)
      return shared_->work.notify_one();
    try {
      add_thread();
    } catch (const std::system_error&) {  // those that there are do it
    }
  }
  // Ends the threads when all tasks are done. One of them may call it: that one ends when it
  // returns.
  void stop() {
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
      threads.swap(threads_);
      shared_->work.notify_all();
    }
    for (std::thread& thread : threads) {
      if (thread.get_id() == std::this_thread::get_id())
        thread.detach();
      else
        thread.join();
    }
    shared_->run();
  }

 private:
  struct Shared {
    // Until stopping, and then until there are no tasks.
    void run() {
      std::unique_lock lock(mutex);
      while (!stopping || !tasks.empty()) {
        if (tasks.empty()) {
          ++idle;
          work.wait(lock);
          --idle;
          continue;
        }
        Task task = std::move(tasks.front());
        tasks.pop_front();
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
      }
    }

    std::mutex mutex;
    std::condition_variable work;
    std::deque<Task> tasks;
    std::size_t idle = 0;
    bool stopping = false;
  };

  void add_thread() {
    threads_.emplace_back([shared = shared_] { shared->run(); });
  }

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<std::thread> threads_;
};

// Thread-safe. Works keep it alive, so it may outlive its process group.
class GroupSession {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // who: the group and its ranks, for messages.
  static std::shared_ptr<GroupSession> open(Communicator communicator, std::string who) {
    auto session = std::make_shared<GroupSession>(std::move(communicator), std::move(who));
    All& all = all_open();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.sessions, [](const auto& one) { return one.expired(); });
    all.sessions.push_back(session);
    return session;
  }
  // At the end of the process.
  static void close_all() noexcept {
    std::vector<std::weak_ptr<GroupSession>> sessions;
    {
      All& all = all_open();
      const std::lock_guard lock(all.mutex);
      sessions.swap(all.sessions);
    }
    for (const auto& one : sessions)
      if (const auto session = one.lock()) session->close();
  }

  GroupSession(Communicator communicator, std::string who)
      : communicator_(std::move(communicator)), who_(std::move(who)) {}
  GroupSession(const GroupSession&) = delete;
  GroupSession& operator=(const GroupSession&) = delete;
  ~GroupSession() {
    close();
    // A child leaves both alone: neither threads nor locks of its parent work there.
    if (!in_child()) return;
    static_cast<void>(finishers_.release());
    static_cast<void>(new std::optional<Communicator>(std::move(communicator_)));
  }

  // Calls function(communicator), which does not wait for operations. Throws DistBackendError.
  template <class Function>
  auto use(const Function& function) {
    refuse_child();
    const Inside inside(*this);
    if (closed_.load() || !communicator_) fail("the process group has been destroyed");
    try {
      return function(*communicator_);
    } catch (const Error& error) {
      fail(error.what(), error.code());
    }
  }
  // As use(), for one thread at a time: operations start in one order.
  template <class Function>
  auto start(const Function& function) {
    return use([&](Communicator& communicator) {
      const std::lock_guard one(starting_);
      return function(communicator);
    });
  }
  // Drives until the operation has ended or the time is over. Returns whether it has ended. Its
  // error stays with it. close() interrupts this.
  bool await(const rondo::Work& work, TimePoint until) {
    refuse_child();
    while (true) {
      const auto left = until - std::chrono::steady_clock::now();
      {
        const Inside inside(*this);
        if (ends_within(work, std::clamp(left, TimePoint::duration::zero(), interruption)))
          return true;
      }
      if (left <= interruption) return work.done();
    }
  }
  // Throws the first error, when all have ended.
  void await_all(const std::vector<rondo::Work>& works) {
    for (const rondo::Work& work : works) await(work, TimePoint::max());
    for (const rondo::Work& work : works)
      if (work.error()) fail(work.message(), work.error());
  }
  // Says that nobody will wait soon.
  void leave(const std::vector<rondo::Work>& works) {
    refuse_child();
    const Inside inside(*this);
    for (const rondo::Work& work : works) work.leave();
  }

  // Programs look for the word timeout in torch's messages.
  [[noreturn]] void fail(const std::string& message, std::error_code code = {}) const {
    const char* const more = code == Errc::deadline_exceeded ? "; the timeout has passed" : "";
    TORCH_CHECK_WITH(DistBackendError, false, "rondo: ", message, more, who_);
  }
  std::exception_ptr error(const rondo::Work& failed) const {
    try {
      fail(failed.message(), failed.error());
    } catch (...) {
      return std::current_exception();
    }
  }

  // To be called before an operation whose end calls finish_later().
  void prepare_finish() { finishers_->prepare(); }
  void finish_later(Finishers::Task task) { finishers_->add(std::move(task)); }

  // What batch norm layers share.
  Norms& norms() noexcept { return norms_; }

  // Ends every operation with this cause, on every rank.
  void abort(const std::string& why) noexcept {
    if (in_child()) return;
    const Inside inside(*this);
    if (communicator_) communicator_->abort(make_error_code(Errc::aborted), why);
  }
  // Whether close() does nothing any more.
  bool closed() const noexcept { return closed_.load() || in_child(); }
  // Leaves the group. What is under way ends with an error on this rank. Again, or in a forked
  // child: does nothing.
  void close() noexcept {
    if (in_child()) return;
    {
      const std::lock_guard nobody_enters(closing_);
      if (closed_.exchange(true)) return;
      const std::unique_lock nobody_inside(gate_);
      communicator_.reset();
    }
    finishers_->stop();
  }

 private:
  // Threads that wait look so often whether the group is being closed: they cannot be woken without
  // an abort, which would end operations on other ranks.
  static constexpr TimePoint::duration interruption = std::chrono::milliseconds{50};

  // As long as it lives the communicator stays. While close() runs, waits for its end.
  class Inside {
   public:
    explicit Inside(GroupSession& session) : gate_(session.gate_, std::defer_lock) {
      if (session.closed_.load()) const std::lock_guard until_closed(session.closing_);
      gate_.lock();
    }

   private:
    std::shared_lock<std::shared_mutex> gate_;
  };

  static bool ends_within(const rondo::Work& work, std::chrono::nanoseconds time) {
    try {
      return work.wait_for(time);
    } catch (const std::exception&) {
      return work.done();
    }
  }

  struct All {
    const unsigned forks = rondo::python::forks().load();
    std::mutex mutex;
    std::vector<std::weak_ptr<GroupSession>> sessions;
  };
  // Those of this process. It stays until the process ends, as works may.
  static All& all_open() {
    static std::atomic<All*> all{nullptr};
    All* present = all.load();
    if (present != nullptr && present->forks == rondo::python::forks().load()) return *present;
    auto fresh = std::make_unique<All>();
    if (all.compare_exchange_strong(present, fresh.get())) return *fresh.release();
    return *present;
  }

  bool in_child() const noexcept { return forks_ != forks().load(std::memory_order_relaxed); }
  void refuse_child() const {
    if (in_child())
      fail("a forked child cannot use the process group of its parent: make a group there");
  }

  const unsigned forks_ = forks().load();
  std::shared_mutex gate_;
  std::mutex starting_, closing_;
  Norms norms_;  // before the communicator, which tells its layers when it ends
  std::optional<Communicator> communicator_;
  const std::string who_;
  std::atomic<bool> closed_{false};
  std::unique_ptr<Finishers> finishers_ = std::make_unique<Finishers>();
};

}  // namespace rondo::python

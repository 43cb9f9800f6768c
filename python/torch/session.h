// SPDX-License-Identifier: Apache-2.0
//
// The communicator of a process group, with what must happen around its life: nobody is inside when
// it goes, errors become torch's, and works for which nobody waits are finished somewhere.
#pragma once

#include <pthread.h>
#include <rondo/communicator.h>
#include <rondo/error.h>

#include <torch/csrc/distributed/c10d/exception.h>
#include <atomic>
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

#include "norms.h"

namespace rondo::torch_backend {

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

  // Throws std::system_error if there is no thread and none can be made; the task is kept.
  void add(Task task) {
    const std::lock_guard lock(shared_->mutex);
    shared_->tasks.push_back(std::move(task));
    if (shared_->idle >= shared_->tasks.size() || shared_->stopping || threads_.size() == most)
      return shared_->work.notify_one();
    try {
      threads_.emplace_back([shared = shared_] { shared->run(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
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

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<std::thread> threads_;
};

// Thread-safe. Works keep it alive, so it may outlive its process group.
class Session {
 public:
  // who: the group and its ranks, for messages.
  static std::shared_ptr<Session> open(Communicator communicator, std::string who) {
    auto session = std::make_shared<Session>(std::move(communicator), std::move(who));
    All& all = all_open();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.sessions, [](const auto& one) { return one.expired(); });
    all.sessions.push_back(session);
    return session;
  }
  // At the end of the process.
  static void close_all() noexcept {
    std::vector<std::weak_ptr<Session>> sessions;
    {
      All& all = all_open();
      const std::lock_guard lock(all.mutex);
      sessions.swap(all.sessions);
    }
    for (const auto& one : sessions)
      if (const auto session = one.lock()) session->close();
  }

  Session(Communicator communicator, std::string who)
      : communicator_(std::move(communicator)), who_(std::move(who)) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    close();
    // A child leaves both alone: neither threads nor locks of its parent work there.
    if (!in_child()) return;
    static_cast<void>(finishers_.release());
    static_cast<void>(new std::optional<Communicator>(std::move(communicator_)));
  }

  // Calls function(communicator), which may wait for operations. Throws DistBackendError.
  template <class Function>
  auto use(const Function& function) {
    refuse_child();
    const Inside inside(*this);
    if (!communicator_) fail("the process group has been destroyed");
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
  // Calls function(), which uses operations of the communicator. Where that is gone they have
  // ended.
  template <class Function>
  void look(const Function& function) {
    refuse_child();
    const Inside inside(*this);
    function();
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

  // What batch norm layers share.
  Norms& norms() noexcept { return norms_; }
  void finish_later(Finishers::Task task) { finishers_->add(std::move(task)); }

  // Ends every operation with this cause, on every rank.
  void abort(const std::string& why) noexcept {
    if (in_child()) return;
    const Inside inside(*this);
    if (communicator_) communicator_->abort(make_error_code(Errc::aborted), why);
  }
  // Leaves the group. What is under way ends with an error. Again, or in a forked child: does
  // nothing.
  void close() noexcept {
    if (in_child() || closed_.exchange(true)) return;
    // Threads that wait for operations get out first.
    if (inside_.load() > 0) abort("the process group is being destroyed");
    std::optional<Communicator> last;
    {
      const std::unique_lock nobody_inside(gate_);
      last.swap(communicator_);
    }
    last.reset();
    finishers_->stop();
  }

 private:
  // As long as it lives the communicator stays.
  class Inside {
   public:
    explicit Inside(Session& session) : session_(session) {
      ++session_.inside_;
      session_.gate_.lock_shared();
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() {
      session_.gate_.unlock_shared();
      --session_.inside_;
    }

   private:
    Session& session_;
  };

  struct All {
    const unsigned forks = rondo::torch_backend::forks().load();
    std::mutex mutex;
    std::vector<std::weak_ptr<Session>> sessions;
  };
  // Those of this process. It stays until the process ends, as works may.
  static All& all_open() {
    static std::atomic<All*> all{nullptr};
    All* present = all.load();
    if (present != nullptr && present->forks == rondo::torch_backend::forks().load())
      return *present;
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
  std::mutex starting_;
  Norms norms_;  // before the communicator, which tells its layers when it ends
  std::optional<Communicator> communicator_;
  const std::string who_;
  std::atomic<bool> closed_{false};
  std::atomic<int> inside_{0};
  std::unique_ptr<Finishers> finishers_ = std::make_unique<Finishers>();
};

}  // namespace rondo::torch_backend

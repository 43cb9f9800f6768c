// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "python/torch/forks.h"

namespace rondo::python {

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
    } catch (const std::system_error&) {  // the threads that exist do it
    }
  }
  // Ends the threads when all tasks are done. One of them may call it: it ends when its task does,
  // and is joined later.
  void stop() {
    Ended::join_those_that_have();
    std::vector<Thread> threads;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
      threads.swap(threads_);
      shared_->work.notify_all();
    }
    for (Thread& one : threads) {
      if (one.thread.get_id() == std::this_thread::get_id())
        Ended::join_later(std::move(one));
      else
        one.thread.join();
    }
    shared_->run();
  }
  // To be called at the end of the process.
  static void join_all() { Ended::join_all(); }

 private:
  struct Shared {
    // Runs tasks until stopping, and then those that are left.
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

  struct Thread {
    std::shared_ptr<std::atomic<bool>> ended;
    std::thread thread;
  };
  // Threads of this process that have stopped their own Finishers: no thread can join itself.
  class Ended {
   public:
    static void join_later(Thread thread) {
      Ended& all = of_this_process<Ended>();
      const std::lock_guard lock(all.mutex_);
      all.threads_.push_back(std::move(thread));
    }
    static void join_those_that_have() {
      Ended& all = of_this_process<Ended>();
      const std::lock_guard lock(all.mutex_);
      std::erase_if(all.threads_, [](Thread& one) {
        if (!one.ended->load()) return false;
        one.thread.join();
        return true;
      });
    }
    static void join_all() {
      Ended& all = of_this_process<Ended>();
      std::vector<Thread> threads;
      {
        const std::lock_guard lock(all.mutex_);
        threads.swap(all.threads_);
      }
      for (Thread& one : threads) one.thread.join();
    }

   private:
    std::mutex mutex_;
    std::vector<Thread> threads_;
  };

  void add_thread() {
    auto ended = std::make_shared<std::atomic<bool>>(false);
    threads_.push_back({ended, {}});
    try {
      threads_.back().thread = std::thread([shared = shared_, ended] {
        shared->run();
        ended->store(true);
      });
    } catch (...) {
      threads_.pop_back();
      throw;
    }
  }

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<Thread> threads_;
};

}  // namespace rondo::python

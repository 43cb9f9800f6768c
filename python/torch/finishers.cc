// SPDX-License-Identifier: Apache-2.0
#include "python/torch/finishers.h"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "python/core/forks.h"

namespace rondo::python {

// Threads of this process that have stopped their own Finishers: no thread can join itself.
struct Finishers::Left {
  std::mutex mutex;
  std::vector<Thread> threads;

  // Joins those that have ended, or all.
  static void join(bool all) {
    Left& own = of_this_process<Left>();
    std::vector<Thread> last;
    {
      const std::lock_guard lock(own.mutex);
      const auto first =
          std::partition(own.threads.begin(), own.threads.end(),
                         [&](const Thread& one) { return !all && !one.ended->load(); });
      last.assign(std::make_move_iterator(first), std::make_move_iterator(own.threads.end()));
      own.threads.erase(first, own.threads.end());
    }
    for (Thread& one : last) one.thread.join();
  }
};

void Finishers::prepare() {
  const std::lock_guard lock(shared_->mutex);
  if (threads_.empty() && !shared_->stopping) add_thread();
}

void Finishers::add(Task task) {
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

void Finishers::stop() {
  Left::join(false);
  std::vector<Thread> threads;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    threads.swap(threads_);
    shared_->work.notify_all();
  }
  for (Thread& one : threads) {
    if (one.thread.get_id() != std::this_thread::get_id()) {
      one.thread.join();
      continue;
    }
    Left& left = of_this_process<Left>();
    const std::lock_guard lock(left.mutex);
    left.threads.push_back(std::move(one));
  }
  shared_->run();
}

void Finishers::join_all() {
  Left::join(true);
}

void Finishers::Shared::run() {
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

void Finishers::add_thread() {
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

}  // namespace rondo::python

// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/pool.h"

#include <algorithm>
#include <system_error>

namespace rondo::layer {

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::grow(std::size_t workers) {
  while (workers_.size() < workers) {
    try {
      workers_.emplace_back([this, number = workers_.size()] { work(number); });
    } catch (const std::system_error&) {
      return;  // fewer threads do the same
    }
  }
}

void Pool::start(int threads, std::size_t tasks, Function function, void* context) {
  const std::size_t useful = std::min(static_cast<std::size_t>(std::max(threads, 1)), tasks);
  if (useful <= 1) {
    for (std::size_t i = 0; i < tasks; ++i) function(context, i);
    return;
  }
  grow(useful - 1);
  std::unique_lock lock(mutex_);
  function_ = function;
  context_ = context;
  wanted_ = useful - 1;
  next_ = 0;
  tasks_ = tasks;
  ++loops_;
  changed_.notify_all();
  take_tasks(lock);
  finished_.wait(lock, [this] { return running_ == 0; });
}

// One lock for each task does not matter: tasks are long.
void Pool::take_tasks(std::unique_lock<std::mutex>& lock) {
  while (next_ < tasks_) {
    const std::size_t task = next_++;
    ++running_;
    lock.unlock();
    function_(context_, task);
    lock.lock();
    if (--running_ == 0 && next_ == tasks_) finished_.notify_all();
  }
}

void Pool::work(std::size_t number) {
  std::unique_lock lock(mutex_);
  std::uint64_t seen = 0;
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || loops_ != seen; });
    if (ending_) return;
    seen = loops_;
    if (number < wanted_) take_tasks(lock);
  }
}

}  // namespace rondo::layer

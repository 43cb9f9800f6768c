// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace rondo::layer {

// Threads for loops. They sleep between loops; the destructor joins them. Thread-bound. mutex_
// protects all members but workers_.
class Pool {
 public:
  Pool() = default;
  ~Pool();

  // Calls task(i) once for each i below `tasks`, on at most `threads` threads, this one among them.
  // Returns when all are done. The task must not throw.
  template <class Task>
  void run(int threads, std::size_t tasks, Task& task) {
    start(
        threads, tasks, [](void* context, std::size_t i) { (*static_cast<Task*>(context))(i); },
        &task);
  }

 private:
  using Function = void (*)(void* context, std::size_t i);

  void start(int threads, std::size_t tasks, Function function, void* context);
  void grow(std::size_t workers);
  void work(std::size_t number);
  void take_tasks(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_, finished_;
  std::vector<std::thread> workers_;
  Function function_ = nullptr;
  void* context_ = nullptr;
  std::size_t wanted_ = 0;  // workers that may take part
  std::size_t next_ = 0, tasks_ = 0, running_ = 0;
  std::uint64_t loops_ = 0;
  bool ending_ = false;
};

}  // namespace rondo::layer

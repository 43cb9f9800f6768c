// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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
  void prepare();
  // After stop() the task runs at once.
  void add(Task task);
  // Ends the threads when all tasks are done. One of them may call it: it ends when its task does,
  // and is joined later.
  void stop();
  // To be called at the end of the process.
  static void join_all();

 private:
  struct Shared {
    // Runs tasks until stopping, and then those that are left.
    void run();

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
  struct Left;

  void add_thread();

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<Thread> threads_;
};

}  // namespace rondo::python

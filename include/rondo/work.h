// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <system_error>

#include <rondo/export.h>

namespace rondo::engine {
class Operation;
}

namespace rondo {

// A handle to an operation under way. Dropping it neither waits nor cancels: the buffers stay
// borrowed until the operation ends. A handle may outlive its communicator, whose destructor ends
// every operation. Reentrant: different handles may be used by different threads at once, one
// handle by one thread at a time.
class [[nodiscard]] RONDO_API Work {
 public:
  Work() noexcept = default;  // already done, without an error
  Work(Work&& other) noexcept : operation_(other.operation_) { other.operation_ = nullptr; }
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // Takes over one reference to the operation, or gives it away: for bindings.
  explicit Work(engine::Operation* operation) noexcept : operation_(operation) {}
  engine::Operation* release() noexcept {
    engine::Operation* const operation = operation_;
    operation_ = nullptr;
    return operation;
  }

  // Drives progress on this thread until the operation ends. Throws Error with the first cause when
  // it failed.
  void wait();
  // As wait(), for at most this long; false when the operation is still running, which it then
  // continues to do.
  bool wait_for(std::chrono::nanoseconds time);
  bool done() const noexcept;
  // No error while running and after success.
  std::error_code error() const noexcept;
  // The message that wait() would throw; empty while running and after success.
  std::string message() const;
  // Calls the function once when the operation ends, at once if it has: on the thread that ended
  // it. It must not block and must not start operations. At most one function for each operation;
  // it must not throw. It may still be running when wait() returns on another thread: what it
  // refers to must outlive it.
  void on_done(std::function<void(std::error_code)> function);

 private:
  engine::Operation* operation_ = nullptr;
};

}  // namespace rondo

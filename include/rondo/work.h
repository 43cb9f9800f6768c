// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <system_error>

#include <rondo/export.h>

namespace rondo::operation {
class Operation;
}

namespace rondo {

// A handle to an operation under way. Dropping it neither waits nor cancels: the buffers stay
// borrowed until the operation ends. A handle may outlive its communicator, whose destructor ends
// every operation, but no thread may wait while that destructor runs. Thread-safe: any number of
// threads may use one handle at once, each for itself, except to move or destroy it.
class [[nodiscard]] RONDO_API Work {
 public:
  Work() noexcept = default;  // already done, without an error
  Work(Work&& other) noexcept : operation_(other.operation_) { other.operation_ = nullptr; }
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // Another handle to the same operation.
  Work share() const noexcept;

  // For bindings: the constructor takes over one reference to the operation, release() gives it
  // away.
  explicit Work(operation::Operation* operation) noexcept : operation_(operation) {}
  operation::Operation* release() noexcept {
    operation::Operation* const operation = operation_;
    operation_ = nullptr;
    return operation;
  }

  // Drives progress on this thread until the operation ends. Not in a host function of CUDA, where
  // no call of CUDA is allowed. If the operation failed, throws Error with the
  // first cause.
  void wait() const;
  // For buffers on a GPU: makes the CUDA stream wait for the end of the operation. What is enqueued
  // there afterwards finds the result. Blocks the host only until the last copy is enqueued, for
  // messages and direct algorithms until they are done. A failure after that is seen by wait(),
  // error() and later operations. For host buffers it is wait(). Throws Error as wait() does, and
  // Error(system) where the GPU refuses the stream.
  void join(void* stream) const;
  // As join(), for at most this long. Returns false if the operation still runs and the stream does
  // not wait for it.
  bool join_for(void* stream, std::chrono::nanoseconds time) const;
  // As wait(), for at most this long. Returns false if the operation still runs, which it continues
  // to do.
  bool wait_for(std::chrono::nanoseconds time) const;
  // Says that nobody will wait soon: as OpOptions::unattended, for an operation under way.
  void leave() const;
  bool done() const noexcept;
  // No error while running and after success.
  std::error_code error() const noexcept;
  // The message that wait() would throw. Empty while running and after success.
  std::string message() const;
  // The rank from which a receive got its message. -1 before the end, after a failure and for other
  // operations.
  int source() const noexcept;
  // Calls the function once when the operation ends, on the thread that ends it; at once, on this
  // thread, if it has ended. The function must not block, start operations or throw. Functions that
  // were given before the end are called in the order in which they were given. They may still be
  // running when wait() returns on another thread, or when on_done() calls a later one at once:
  // what they refer to must outlive them. For the message, keep a handle from share().
  void on_done(std::function<void(std::error_code)> function) const;

 private:
  operation::Operation* operation_ = nullptr;
};

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
//
// Free operations, linked by Operation::next. Any thread gives one back when it drops the last
// reference. The engine takes them under its lock. The pool itself has no lock, and nothing in it
// fails. It lives as long as any of its operations, also after the engine: see close().
#pragma once

#include <atomic>

namespace rondo::operation {

class Operation;

class OperationPool {
 public:
  OperationPool() = default;
  OperationPool(const OperationPool&) = delete;
  OperationPool& operator=(const OperationPool&) = delete;

  // Thread-safe. After close() the operation is deleted instead.
  void give(Operation& operation) noexcept;
  // Null when the pool is empty. Thread-bound: the engine calls it under its lock.
  Operation* take() noexcept;
  // Deletes the operations in the pool, and from now on each that is given back. Must not run at
  // the same time as take(), nor before it.
  void close() noexcept;

 private:
  std::atomic<Operation*> given_{nullptr};
  Operation* free_ = nullptr;  // for take(): once the whole list of given_
};

}  // namespace rondo::operation

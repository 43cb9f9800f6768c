// SPDX-License-Identifier: Apache-2.0
//
// Free operations, linked by Operation::next_free. Any thread gives one back when it drops the last
// reference; the engine takes them, one thread at a time. The pool lives as long as any of its
// operations, also after the engine: see close().
#pragma once

#include <atomic>

namespace rondo::engine {

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
  // Deletes the operations in the pool, and from now on each that is given back. Not together with
  // take().
  void close() noexcept;

 private:
  std::atomic<Operation*> given_{nullptr};
  Operation* free_ = nullptr;  // taken out of given_ together
};

}  // namespace rondo::engine

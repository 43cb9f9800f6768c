// SPDX-License-Identifier: Apache-2.0
//
// Operations that nobody refers to, linked by Operation::next_free. Any thread gives one back, when it drops the last reference; the
// engine takes them, one thread at a time. It outlives the engine for as long as there are operations: close() ends it.
#pragma once

#include <atomic>

namespace rondo {

class Operation;

class OperationPool {
 public:
  OperationPool() = default;
  OperationPool(const OperationPool&) = delete;
  OperationPool& operator=(const OperationPool&) = delete;

  // Thread-safe. After close() the operation is deleted instead.
  void give(Operation& operation) noexcept;
  // None when there is none. Thread-bound: the engine's, under its lock.
  Operation* take() noexcept;
  // Deletes those that are here, and from now on each that comes. Not together with take().
  void close() noexcept;

 private:
  std::atomic<Operation*> given_{nullptr};
  Operation* free_ = nullptr;  // taken out of given_ together
};

}  // namespace rondo

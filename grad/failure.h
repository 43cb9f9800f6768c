// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>

#include "grad/setup.h"

namespace rondo::grad {

// Keeps the first failure of a step. Every later call on the buckets throws it again.
//
// Threads: every function from any thread.
// Locks: a mutex of its own, held only while the failure is copied. check() takes it only once
// there is a failure.
class Failure {
 public:
  explicit Failure(const Setup& setup) noexcept : setup_(setup) {}

  // Throws the failure if there is one.
  void check() const;
  bool happened() const noexcept { return happened_.load(std::memory_order_acquire); }
  // Keeps the first failure and ignores the others. Releases the order of bulk operations.
  void keep(std::error_code code, const std::string& message);
  // Keeps the exception that is being handled. Ends the step on all ranks, unless it is a mismatch:
  // every rank gets that one by itself.
  void keep_current(std::uint64_t step);

 private:
  const Setup& setup_;
  mutable std::mutex mutex_;
  std::atomic<bool> happened_{false};
  std::error_code code_;
  std::string message_;
};

}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <string_view>

#include <rondo/types.h>

namespace rondo::lib {

// Guards the order of bulk operations on a communicator: everybody may start them, or only the
// owner that has reserved their order. Thread-safe. A check that passes takes no lock.
class BulkOrder {
 public:
  // Throws Error(invalid_argument) if another owner has reserved the order. `who` must live until
  // release().
  void reserve(int rank, const void* owner, std::string_view who);
  void release(const void* owner) noexcept;
  // Throws Error(invalid_argument), which names the owner and what to do instead.
  void check(int rank, Collective operation, const void* owner) const {
    const void* const has = owner_.load(std::memory_order_relaxed);
    if (has != nullptr && has != owner) refuse(rank, operation);
  }

 private:
  [[noreturn]] void refuse(int rank, Collective operation) const;

  std::atomic<const void*> owner_{nullptr};
  mutable std::mutex mutex_;  // protects who_ and changes of owner_
  std::string_view who_;
};

}  // namespace rondo::lib

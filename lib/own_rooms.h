// SPDX-License-Identifier: Apache-2.0
//
// The parts of a communicator that serve Rondo's own rooms above it: see inner.h.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include <rondo/types.h>

#include "lib/inner.h"

namespace rondo::lib {

// Guards the order of bulk operations on a communicator: any caller may start them, or only the
// owner that has reserved their order. Thread-safe. A check takes no lock while nobody has reserved
// it, and none on the owner's behalf (AsOwner).
class BulkOrder {
 public:
  // Throws Error(invalid_argument) if another owner has reserved the order. `who` must live until
  // release().
  void reserve(int rank, const void* owner, std::string_view who);
  void release(const void* owner) noexcept;
  // Throws Error(invalid_argument), which names the owner and what to do instead, unless this
  // thread is the owner's (AsOwner).
  void check(int rank, Collective operation) const {
    const void* const owner = owner_.load(std::memory_order_relaxed);
    if (owner != nullptr) check_owner(rank, operation, owner);
  }

 private:
  void check_owner(int rank, Collective operation, const void* owner) const;

  std::atomic<const void*> owner_{nullptr};
  mutable std::mutex mutex_;  // protects who_ and changes of owner_
  std::string_view who_;
};

// The objects that rooms keep with a communicator. Thread-safe; locks its mutex.
class Attachments {
 public:
  Attachment& attach(const void* key, std::unique_ptr<Attachment> kept);
  Attachment* find(const void* key);
  void clear() { by_key_.clear(); }  // when no thread uses it any more

 private:
  std::mutex mutex_;
  std::map<const void*, std::unique_ptr<Attachment>> by_key_;
};

}  // namespace rondo::lib

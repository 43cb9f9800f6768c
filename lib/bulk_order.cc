// SPDX-License-Identifier: Apache-2.0
#include "lib/bulk_order.h"

#include <fmt/format.h>
#include <rondo/error.h>

namespace rondo::lib {

void BulkOrder::reserve(int rank, const void* owner, std::string_view who) {
  const std::lock_guard lock(mutex_);
  const void* const has = owner_.load(std::memory_order_relaxed);
  if (has != nullptr && has != owner)
    throw Error(
        Errc::invalid_argument,
        fmt::format(
            "{} on rank {}: {} hold the bulk operations of this communicator until their step "
            "ends: call finish() there first, or use a communicator of split() for one of them",
            who, rank, who_));
  who_ = who;
  owner_.store(owner, std::memory_order_relaxed);
}

void BulkOrder::release(const void* owner) noexcept {
  const std::lock_guard lock(mutex_);
  if (owner_.load(std::memory_order_relaxed) == owner)
    owner_.store(nullptr, std::memory_order_relaxed);
}

void BulkOrder::refuse(int rank, Collective operation) const {
  const std::lock_guard lock(mutex_);
  throw Error(
      Errc::invalid_argument,
      fmt::format(
          "{} on rank {}: {} hold the bulk operations of this communicator until their step "
          "ends, because they start them at times that differ between ranks: use "
          "Priority::urgent, call this before begin_step() or after finish(), or use a "
          "communicator of split()",
          name_of(operation), rank, who_));
}

}  // namespace rondo::lib

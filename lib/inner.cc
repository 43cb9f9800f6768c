// SPDX-License-Identifier: Apache-2.0
#include "lib/inner.h"

#include <fmt/format.h>
#include <rondo/error.h>

#include <utility>

#include "lib/own_rooms.h"
#include "lib/state.h"

namespace rondo::lib {
namespace {

// The owner whose operations this thread starts now.
thread_local const void* owner_here = nullptr;

}  // namespace

AsOwner::AsOwner(const void* owner) noexcept : before_(std::exchange(owner_here, owner)) {}
AsOwner::~AsOwner() {
  owner_here = before_;
}

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

void BulkOrder::check_owner(int rank, Collective operation, const void* owner) const {
  // Callbacks of the operation may run before it is waited for: they are not the owner's.
  if (owner == std::exchange(owner_here, nullptr)) return;
  const std::lock_guard lock(mutex_);
  if (owner_.load(std::memory_order_relaxed) != owner) return;  // released meanwhile, with who_
  throw Error(
      Errc::invalid_argument,
      fmt::format(
          "{} on rank {}: {} hold the bulk operations of this communicator until their step "
          "ends, because they start them at times that differ between ranks: use "
          "Priority::urgent, call this before begin_step() or after finish(), or use a "
          "communicator of split()",
          name_of(operation), rank, who_));
}

void reserve_bulk(Communicator& communicator, const void* owner, std::string_view who) {
  communicator.state().refuse_child();
  communicator.state().bulk_order().reserve(communicator.rank(), owner, who);
}

void release_bulk(Communicator& communicator, const void* owner) noexcept {
  if (!communicator.state().in_other_process()) communicator.state().bulk_order().release(owner);
}

Attachment& Attachments::attach(const void* key, std::unique_ptr<Attachment> kept) {
  if (key == nullptr || !kept)
    throw Error(Errc::invalid_argument, "attach: neither the key nor the attachment may be null");
  const std::lock_guard lock(mutex_);
  return *by_key_.try_emplace(key, std::move(kept)).first->second;
}

Attachment* Attachments::find(const void* key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  return found != by_key_.end() ? found->second.get() : nullptr;
}

Attachment& attach(Communicator& communicator, const void* key, std::unique_ptr<Attachment> kept) {
  communicator.state().refuse_child();
  return communicator.state().attachments().attach(key, std::move(kept));
}

Attachment* attachment(const Communicator& communicator, const void* key) {
  communicator.state().refuse_child();
  return communicator.state().attachments().find(key);
}

}  // namespace rondo::lib

// SPDX-License-Identifier: Apache-2.0
//
// Functions of a communicator for Rondo's own rooms above it, not for programs.
#pragma once

#include <memory>
#include <string_view>

#include <rondo/communicator.h>

namespace rondo::lib {

// An object that a room keeps with a communicator: see attach().
class Attachment {
 public:
  virtual ~Attachment() = default;
};

// Keeps an object with the communicator under a key, the address of something of the caller's own,
// so that two rooms never use the same key. Returns the kept object: the new one, or the one that
// was there before, and then the new one is destroyed. Throws Error(invalid_argument) if the key or
// the object is null. Thread-safe. Throws Error(unsupported) in a forked child.
//
// The destructor of the communicator destroys the kept objects after the last operation has ended,
// in no particular order. A split has attachments of its own.
Attachment& attach(Communicator& communicator, const void* key, std::unique_ptr<Attachment> kept);
// Null if nothing has this key. Thread-safe; throws like attach().
Attachment* attachment(const Communicator& communicator, const void* key);

// Reserves the order of bulk operations for one owner whose operations start by themselves, as
// GradientBuckets does in a step. Until release_bulk() with this owner, other bulk operations throw
// Error(invalid_argument) on every thread. So does another owner's reserve_bulk(). `who` names the
// owner in messages and must live until then. Local: all ranks must make the same calls. Urgent
// operations and messages have orders of their own. release_bulk() by another owner does nothing.
// Both are thread-safe. reserve_bulk() throws Error(unsupported) in a forked child.
void reserve_bulk(Communicator& communicator, const void* owner, std::string_view who);
void release_bulk(Communicator& communicator, const void* owner) noexcept;

// While the object lives, the next bulk operation that its thread starts is the owner's.
class AsOwner {
 public:
  explicit AsOwner(const void* owner) noexcept;
  AsOwner(const AsOwner&) = delete;
  AsOwner& operator=(const AsOwner&) = delete;
  ~AsOwner();

 private:
  const void* const before_;
};

}  // namespace rondo::lib

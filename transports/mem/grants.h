// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/copy.h"
#include "base/mutex.h"

namespace rondo::mem {

// The memory that the receiver of one direction of a link has granted to its sender, frame by
// frame. The sender writes payloads there by itself, as an RDMA writer does: at a time of its own,
// in any order, and before the header has come.
//
// Threads: thread-safe; the two ends call it from threads of their own. Locks: one mutex, held
// during the copy of a payload, so that close() returns when no write is under way. Failures: none;
// a write that is not granted says so.
class MemGrants {
 public:
  struct Grant {
    std::uint64_t frame = 0;
    std::span<std::byte> destination;  // as large as the payload of the frame
    bool written = false;              // the payload is there
  };

  // The receiver's side. Each frame once.
  void grant(std::uint64_t frame, std::span<std::byte> destination) {
    const base::Locked lock(mutex_);
    if (!closed_) grants_.push_back({frame, destination, false});
  }
  // Ends the grant of this frame, if there is one, and says how it stands.
  std::optional<Grant> take(std::uint64_t frame) {
    const base::Locked lock(mutex_);
    const auto found = std::ranges::find(grants_, frame, &Grant::frame);
    if (found == grants_.end()) return std::nullopt;
    const Grant taken = *found;
    grants_.erase(found);
    return taken;
  }
  // Takes all grants back. From now on nothing is written.
  void close() noexcept {
    const base::Locked lock(mutex_);
    closed_ = true;
    grants_.clear();
  }

  // The sender's side.
  bool covers(std::uint64_t frame, std::size_t bytes) {
    const base::Locked lock(mutex_);
    return find(frame, bytes) != grants_.end();
  }
  // False when the grant has been taken back meanwhile.
  bool write(std::uint64_t frame, std::span<const std::byte> payload) {
    const base::Locked lock(mutex_);
    const auto found = find(frame, payload.size());
    if (found == grants_.end()) return false;
    base::copy_bytes(found->destination.data(), payload.data(), payload.size());
    found->written = true;
    return true;
  }

 private:
  std::vector<Grant>::iterator find(std::uint64_t frame, std::size_t bytes) RONDO_REQUIRES(mutex_) {
    return std::ranges::find_if(grants_, [&](const Grant& grant) {
      return grant.frame == frame && grant.destination.size() == bytes;
    });
  }

  base::Mutex mutex_;
  std::vector<Grant> grants_ RONDO_GUARDED_BY(mutex_);
  bool closed_ RONDO_GUARDED_BY(mutex_) = false;
};

}  // namespace rondo::mem

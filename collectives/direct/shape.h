// SPDX-License-Identifier: Apache-2.0
//
// How a direct algorithm cuts a buffer: into chunks, and each chunk into one part for each rank
// (broadcast: one part in all). A chunk of a contiguous buffer is cut into nearly equal parts. In a
// blocked buffer part j lies in block j, and blocks may differ in size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/schedules/call.h"

namespace rondo::direct {

struct DirectPart {
  std::size_t buffer = 0;  // elements from the start of the whole buffer
  std::size_t block = 0;   // elements from the start of a buffer that is one block
  std::size_t slot = 0;    // bytes from the start of the slot
  std::size_t count = 0;   // elements
};

class DirectShape {
 public:
  DirectShape() = default;
  // most_bytes: what a chunk may take of one slot. offsets: where each block starts and the last
  // one ends, if ranks have counts of their own; they outlive the shape.
  DirectShape(const schedules::Signature& signature, std::size_t ranks,
              std::span<const std::size_t> offsets, std::size_t most_bytes) noexcept;

  std::uint64_t chunks() const noexcept { return chunks_; }
  std::size_t parts() const noexcept { return parts_; }
  DirectPart part(std::uint64_t chunk, std::size_t index) const noexcept;
  // Elements of a block, and where it starts. A contiguous buffer counts as one block.
  std::size_t block_count(std::size_t index) const noexcept {
    return offsets_.empty() ? count_ : offsets_[index + 1] - offsets_[index];
  }
  std::size_t block_offset(std::size_t index) const noexcept {
    if (!blocked_) return 0;
    return offsets_.empty() ? index * count_ : offsets_[index];
  }
  // Elements of the largest block, and of all of them.
  std::size_t most() const noexcept { return count_; }
  std::size_t total() const noexcept {
    return blocked_ ? block_offset(parts_ - 1) + block_count(parts_ - 1) : count_;
  }

 private:
  std::size_t count_ = 0;    // elements of the buffer, or of the largest block
  std::size_t chunk_ = 1;    // elements of a chunk of it
  std::size_t element_ = 1;  // bytes
  std::size_t parts_ = 1;
  bool blocked_ = false;
  bool own_slot_ = false;  // a slot holds one part only
  std::uint64_t chunks_ = 0;
  std::span<const std::size_t> offsets_;
};

}  // namespace rondo::direct

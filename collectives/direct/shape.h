// SPDX-License-Identifier: Apache-2.0
//
// How a direct algorithm cuts a buffer: into chunks, and each chunk into one part for each rank
// (broadcast: one part in all). A chunk of a contiguous buffer is cut into nearly equal parts. In a
// blocked buffer part j lies in block j. Blocks may differ in size, and gaps may lie between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/schedules/call.h"
#include "collectives/schedules/layout.h"

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
  // most_bytes: what a chunk may take of one slot. blocks: where each rank's block lies, if ranks
  // have counts of their own. They do not overlap, and outlive the shape.
  DirectShape(const schedules::Signature& signature, std::size_t ranks,
              std::span<const schedules::Range> blocks, std::size_t most_bytes) noexcept;

  std::uint64_t chunks() const noexcept { return chunks_; }
  std::size_t parts() const noexcept { return parts_; }
  DirectPart part(std::uint64_t chunk, std::size_t index) const noexcept;
  // Elements of a block, and where it starts. A contiguous buffer counts as one block.
  std::size_t block_count(std::size_t index) const noexcept {
    return blocks_.empty() ? count_ : blocks_[index].count;
  }
  std::size_t block_offset(std::size_t index) const noexcept {
    if (!blocked_) return 0;
    return blocks_.empty() ? index * count_ : blocks_[index].offset;
  }
  // Elements of the largest block, and of all of them.
  std::size_t most() const noexcept { return count_; }
  std::size_t total() const noexcept { return blocked_ ? packed_offset(parts_) : count_; }
  // Elements of all blocks before this one: where it starts in memory without gaps.
  std::size_t packed_offset(std::size_t index) const noexcept;
  // Where the last element of the buffer ends.
  std::size_t end() const noexcept;

 private:
  std::size_t count_ = 0;    // elements of the buffer, or of the largest block
  std::size_t chunk_ = 1;    // elements of a chunk of it
  std::size_t element_ = 1;  // bytes
  std::size_t parts_ = 1;
  bool blocked_ = false;
  bool own_slot_ = false;  // a slot holds one part only
  std::uint64_t chunks_ = 0;
  std::span<const schedules::Range> blocks_;
};

}  // namespace rondo::direct

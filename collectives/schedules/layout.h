// SPDX-License-Identifier: Apache-2.0
//
// Where the slices of each segment lie.
// - A buffer without blocks is cut into segments, and each segment into nearly equal slices.
// - A buffer with blocks (all_gather, gather, all_to_all, ...) has one block for each rank. Every
//   segment takes the same part of each block, and slice i is the part of block i.
// - Blocks of different sizes are each cut into as many nearly equal parts as there are segments.
//   Some of these parts are empty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rondo::schedules {

struct Range {
  std::size_t offset = 0;  // elements, from the start of the whole buffer
  std::size_t count = 0;
};

// A value: nothing changes after construction, and nothing can fail.
class Layout {
 public:
  Layout() = default;
  // count: elements of the buffer, or of one block. segment: elements of a segment, or of its part
  // of one block. 0 counts as 1.
  Layout(std::size_t count, std::size_t segment, std::uint32_t slices, bool blocked) noexcept
      : count_(count),
        segment_(std::min(std::max<std::size_t>(segment, 1), std::max<std::size_t>(count, 1))),
        slices_(slices),
        blocked_(blocked) {}

  // Blocks of different sizes: block i lies from offsets[i] to offsets[i + 1]. segment: elements
  // of a segment's part of the largest block. The offsets must outlive this object.
  Layout(std::span<const std::size_t> offsets, std::size_t segment) noexcept
      : slices_(static_cast<std::uint32_t>(offsets.size() - 1)), blocked_(true), offsets_(offsets) {
    for (std::uint32_t i = 0; i < slices_; ++i) count_ = std::max(count_, block(i));
    segment_ = std::min(std::max<std::size_t>(segment, 1), std::max<std::size_t>(count_, 1));
  }

  // An empty buffer has one empty segment: its frames carry the agreement of the ranks.
  std::uint64_t segments() const noexcept { return count_ == 0 ? 1 : (count_ - 1) / segment_ + 1; }
  // Elements of the largest segment, all blocks together. Staging memory holds this many for each
  // segment.
  std::size_t segment_span() const noexcept { return blocked_ ? segment_ * slices_ : segment_; }

  // The slice's place in the whole buffer. The token (slice == slices) is empty.
  Range in_buffer(std::uint64_t segment, std::uint32_t slice) const noexcept {
    if (slice >= slices_) return {};
    if (!offsets_.empty()) {
      const Range r = in_unequal(segment, slice);
      return {offsets_[slice] + r.offset, r.count};
    }
    const Range r = in_part(segment, slice);
    const std::size_t start = segment * segment_;
    return {start + (blocked_ ? slice * count_ + r.offset : r.offset), r.count};
  }
  // The slice's place in staging memory that holds one segment.
  Range in_staging(std::uint64_t segment, std::uint32_t slice) const noexcept {
    if (slice >= slices_) return {};
    if (!offsets_.empty()) return {slice * segment_, in_unequal(segment, slice).count};
    const Range r = in_part(segment, slice);
    return {blocked_ ? slice * segment_ : r.offset, r.count};
  }
  // The slice's offset in a buffer that holds this block only.
  std::size_t in_block(std::uint64_t segment, std::uint32_t slice) const noexcept {
    return offsets_.empty() ? segment * segment_ : in_unequal(segment, slice).offset;
  }

 private:
  std::size_t block(std::uint32_t slice) const noexcept {
    return offsets_[slice + 1] - offsets_[slice];
  }
  // Relative to the start of the block. No part has more than segment_ elements: those of the
  // largest block have not.
  Range in_unequal(std::uint64_t segment, std::uint32_t slice) const noexcept {
    const std::size_t share = block(slice) / segments(), extra = block(slice) % segments();
    return {segment * share + std::min<std::size_t>(segment, extra),
            share + (segment < extra ? 1 : 0)};
  }
  // Relative to the start of the segment, or of its part of the block.
  Range in_part(std::uint64_t segment, std::uint32_t slice) const noexcept {
    const std::size_t start = segment * segment_;
    const std::size_t length = std::min(segment_, count_ - std::min(count_, start));
    if (blocked_) return {0, length};
    const std::size_t share = length / slices_, extra = length % slices_;
    return {slice * share + std::min<std::size_t>(slice, extra), share + (slice < extra ? 1 : 0)};
  }

  std::size_t count_ = 0;
  std::size_t segment_ = 1;
  std::uint32_t slices_ = 1;
  bool blocked_ = false;
  std::span<const std::size_t> offsets_;
};

}  // namespace rondo::schedules

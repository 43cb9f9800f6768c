// SPDX-License-Identifier: Apache-2.0
//
// A segment is the memory that a rank shows to the others of its host. Its owner alone writes it;
// the others map it without the right to write.
//   segment = head pair*ranks area ring*(3*ranks)        ; ranks: those of this host, in order
// Each pair is for one other rank: how much of frames above whole_bytes has been put into the rings
// for it (one for each lane), and how much of its rings for this rank has been taken out. Since one
// rank writes a pair and one reads it, all of that has one cache line. Small frames need no look at
// it (ring.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/process_fence.h"
#include "base/shared_memory.h"
#include "transports/transport.h"

namespace rondo::shm {

struct SegmentHead {
  alignas(64) std::atomic<std::uint64_t> sleeping;  // 0: awake; else which sleep of this rank it is
  std::atomic<std::uint64_t> awaited;               // whose stores must wake it: see Windows::await
  std::atomic<std::uint32_t> core;                  // that on which it waited last, plus 1
  alignas(64) std::atomic<std::uint32_t> left;      // not 0: it has closed in order
  // Not 0: it makes a heavy fence before it sleeps (base/process_fence.h). Set before peers see it.
  std::atomic<std::uint32_t> heavy_fence;
  std::atomic<std::uint32_t> extents;  // mask of those that its memory file has (extent.h)
  std::atomic<std::uint32_t> stopped;  // not 0: its callers may have got their memory back

  // For the owner, between what it says of its sleep and its last look for news.
  void fence_before_look() const noexcept {
    if (heavy_fence.load(std::memory_order_relaxed) != 0)
      base::heavy_fence();
    else
      std::atomic_thread_fence(std::memory_order_seq_cst);
  }
};

struct alignas(64) SegmentPair {
  std::atomic<std::uint64_t> changes;                                // of all that follows
  std::atomic<std::uint64_t> produced[transports::link_lane_count];  // bytes since the start
  std::atomic<std::uint64_t> consumed[transports::link_lane_count];
  // Mask of the other rank's that this one has mapped, and host::descriptor_sent.
  std::atomic<std::uint64_t> extents;
};
static_assert(sizeof(SegmentPair) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

// Where everything lies: the same in every segment of a group of ranks.
class SegmentLayout {
 public:
  explicit SegmentLayout(std::size_t ranks) noexcept
      : ranks_(ranks),
        ring_bytes_(std::size_t{ranks <= 16 ? 256u : 128u} << 10),
        page_(base::page_bytes()) {}
  std::size_t ring_bytes() const noexcept { return ring_bytes_; }
  std::size_t pair(std::size_t index) const noexcept { return page_ + index * sizeof(SegmentPair); }
  std::size_t area() const noexcept { return (pair(ranks_) + page_ - 1) / page_ * page_; }
  std::size_t ring(std::size_t index, transports::Lane lane) const noexcept {
    return area() + transports::window_area_bytes +
           (index * transports::link_lane_count + static_cast<std::size_t>(lane)) * ring_bytes_;
  }
  std::size_t bytes() const noexcept { return ring(ranks_, transports::Lane{}); }

 private:
  std::size_t ranks_, ring_bytes_, page_;
};

// One segment in this process. index: of the rank for which a pair or a ring is.
class Segment {
 public:
  Segment(const SegmentLayout& layout, base::Mapping mapping) noexcept
      : layout_(layout), mapping_(std::move(mapping)) {}
  SegmentHead& head() const noexcept { return *reinterpret_cast<SegmentHead*>(mapping_.data()); }
  SegmentPair& pair(std::size_t index) const noexcept {
    return *reinterpret_cast<SegmentPair*>(mapping_.data() + layout_.pair(index));
  }
  std::byte* area() const noexcept { return mapping_.data() + layout_.area(); }
  std::byte* ring(std::size_t index, transports::Lane lane) const noexcept {
    return mapping_.data() + layout_.ring(index, lane);
  }

 private:
  SegmentLayout layout_;
  base::Mapping mapping_;
};

}  // namespace rondo::shm

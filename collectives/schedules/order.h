// SPDX-License-Identifier: Apache-2.0
//
// The order of frames on a link: a pure function that both ends compute. Let a segment take
// `rounds` rounds. A frame of round r of segment s has the key s * rounds + r * depth. On every
// link the smallest key goes first, then the oldest segment, then list order. So `depth` segments
// are in flight at once, evenly staggered over the rounds, and no segment waits for the whole
// buffer.
//
// The order cannot deadlock: all links use the same keys, and no frame depends on a frame with a
// greater key. One frame of credit on each link and a window of `depth` segments are enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace rondo::schedules {

// The order of frames on one link in one direction, as a table of one period: `rounds` keys, in
// which each of a segment's frames has one place. Constant once made.
class FrameTable {
 public:
  // In period p this place belongs to frame `frame` of segment p - shift.
  struct Entry {
    std::uint32_t frame = 0;
    std::uint32_t shift = 0;
  };

  FrameTable() = default;
  // frame_rounds: the round (1 to rounds) of each frame, in list order, not decreasing.
  FrameTable(std::span<const std::uint32_t> frame_rounds, std::uint32_t rounds,
             std::uint32_t depth);

  std::uint32_t frames() const noexcept { return static_cast<std::uint32_t>(entries_.size()); }
  const Entry& entry(std::uint32_t index) const noexcept { return entries_[index]; }
  // The last frame of segment s travels in period s + last_shift().
  std::uint32_t last_shift() const noexcept { return last_shift_; }

 private:
  std::vector<Entry> entries_;
  std::uint32_t last_shift_ = 0;
};

// Frame tables by the rounds of their frames: most links of a large group share a few tables.
// Thread-bound; find() may allocate. A table that find() returned never moves.
class FrameTables {
 public:
  FrameTables(std::uint32_t rounds, std::uint32_t depth) : rounds_(rounds), depth_(depth) {}
  const FrameTable& find(std::span<const std::uint32_t> frame_rounds);

 private:
  std::uint32_t rounds_, depth_;
  std::map<std::vector<std::uint32_t>, FrameTable> tables_;
  std::vector<std::uint32_t> key_;
};

// How many segments a rank must hold at once so that every link can follow its order.
inline std::uint64_t segment_window(std::uint32_t depth) noexcept {
  return std::max<std::uint64_t>(1, depth);
}

// Walks along the frames of `segments` segments on one link. advance() takes constant time when
// there are more segments than depth. Thread-bound. The table must outlive it.
class FrameOrder {
 public:
  FrameOrder() = default;
  FrameOrder(const FrameTable& table, std::uint64_t segments) noexcept
      : table_(table.frames() == 0 || segments == 0 ? nullptr : &table), segments_(segments) {
    if (!done()) settle();
  }

  bool done() const noexcept { return table_ == nullptr; }
  std::uint64_t segment() const noexcept { return period_ - table_->entry(index_).shift; }
  std::uint32_t frame() const noexcept { return table_->entry(index_).frame; }
  void advance() noexcept {
    step();
    settle();
  }

 private:
  void step() noexcept {
    if (++index_ < table_->frames()) return;
    index_ = 0;
    ++period_;
  }
  // Skips places of segments that do not exist: those before the first and after the last.
  void settle() noexcept {
    for (;; step()) {
      const std::uint64_t shift = table_->entry(index_).shift;
      if (shift <= period_ && period_ - shift < segments_) return;
      if (period_ >= segments_ + table_->last_shift()) break;
    }
    table_ = nullptr;
  }

  const FrameTable* table_ = nullptr;  // null when all frames have been passed
  std::uint64_t segments_ = 0;
  std::uint64_t period_ = 0;  // key / rounds
  std::uint32_t index_ = 0;
};

}  // namespace rondo::schedules

// SPDX-License-Identifier: Apache-2.0
//
// The order of frames on a link: a pure function that both ends compute. Let a segment take
// `rounds` rounds. Then what belongs to round r of segment s has the key s * rounds + r * depth,
// and on every link smaller keys go first (then older segments, then list order). So `depth`
// segments are under way at once, evenly staggered over the rounds, and never does one have to wait
// for the whole buffer. The key is one for all links, and nothing ever depends on anything with a
// greater key: that is why the order cannot deadlock, with one frame of credit on each link and a
// window of `depth` segments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace rondo::schedules {

// The order of the frames that one link carries for each segment in one direction, as a table with
// one entry for each frame.
class FrameTable {
 public:
  // When segment s is at this place, it is frame `frame` of segment period - shift.
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

// Frame tables by the rounds of their frames: most links of a large group share a few. A table that
// it has returned stays where it is.
class FrameTables {
 public:
  FrameTables(std::uint32_t rounds, std::uint32_t depth) : rounds_(rounds), depth_(depth) {}
  const FrameTable& find(std::span<const std::uint32_t> frame_rounds);

 private:
  std::uint32_t rounds_, depth_;
  std::map<std::vector<std::uint32_t>, FrameTable> tables_;
  std::vector<std::uint32_t> key_;
};

// Segments that a rank must hold at once so that every link can follow its order.
inline std::uint64_t segment_window(std::uint32_t depth) noexcept {
  return std::max<std::uint64_t>(1, depth);
}

// Walks along the frames of `segments` segments: constant time a frame when there are more segments
// than depth. The table must outlive it.
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
  // At both ends of the buffer some places of a period belong to segments that do not exist.
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

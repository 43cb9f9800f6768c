// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/order.h"

#include <utility>

namespace rondo::schedules {

// From one segment to the next a frame's key grows by `rounds`, so in each period of that length
// every frame has exactly one place.
FrameTable::FrameTable(std::span<const std::uint32_t> frame_rounds, std::uint32_t rounds,
                       std::uint32_t depth) {
  std::vector<std::pair<std::uint64_t, Entry>> places;
  places.reserve(frame_rounds.size());
  const std::uint64_t length = std::max(1u, rounds);
  for (const std::uint32_t round : frame_rounds) {
    const std::uint64_t offset = std::uint64_t{round - 1} * std::max(1u, depth);
    const Entry entry{.frame = static_cast<std::uint32_t>(places.size()),
                      .shift = static_cast<std::uint32_t>(offset / length)};
    places.emplace_back(offset % length, entry);
  }
  std::stable_sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.shift > b.second.shift;
  });
  entries_.reserve(places.size());
  for (const auto& [offset, entry] : places) {
    entries_.push_back(entry);
    last_shift_ = std::max(last_shift_, entry.shift);
  }
}

const FrameTable& FrameTables::find(std::span<const std::uint32_t> frame_rounds) {
  key_.assign(frame_rounds.begin(), frame_rounds.end());
  const auto found = tables_.find(key_);
  if (found != tables_.end()) return found->second;
  return tables_.emplace(key_, FrameTable(frame_rounds, rounds_, depth_)).first->second;
}

}  // namespace rondo::schedules

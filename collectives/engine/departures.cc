// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/departures.h"

#include <algorithm>
#include <utility>

namespace rondo::engine {

void Departures::add(int rank, const std::uint64_t (&finished)[lane_count]) {
  left_.push_back({rank, {}});
  std::copy_n(finished, lane_count, left_.back().finished);
}

// If several ranks have left, takes the one that has done least. So every rank takes the same one,
// whichever it heard of first.
std::optional<operation::Failure> Departures::find(
    const operation::CollectiveOperation& operation) const {
  const auto lane = static_cast<std::size_t>(operation.priority());
  const Left* first = nullptr;
  for (const Left& left : left_) {
    if (operation.number <= left.finished[lane]) continue;
    if (first == nullptr ||
        std::pair(left.finished[lane], left.rank) < std::pair(first->finished[lane], first->rank))
      first = &left;
  }
  if (first == nullptr) return std::nullopt;
  return operation::left_failure(first->rank, first->finished);
}

}  // namespace rondo::engine

// SPDX-License-Identifier: Apache-2.0
#include "base/rank_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace rondo::base {

std::string list_of_ranks(std::vector<int> ranks) {
  constexpr std::size_t most_parts = 16, shortest_row = 3;
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t parts = 0;
  for (std::size_t i = 0; i < ranks.size(); ++parts) {
    if (parts == most_parts) return text + fmt::format(" and {} more", ranks.size() - i);
    std::size_t row = 1;
    while (i + row < ranks.size() && ranks[i + row] == ranks[i] + static_cast<int>(row)) ++row;
    if (row < shortest_row) row = 1;
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ", ", ranks[i]);
    if (row > 1) fmt::format_to(std::back_inserter(text), "-{}", ranks[i + row - 1]);
    i += row;
  }
  return text;
}

}  // namespace rondo::base

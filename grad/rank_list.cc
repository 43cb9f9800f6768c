// SPDX-License-Identifier: Apache-2.0
#include "grad/rank_list.h"

#include <fmt/format.h>

#include <iterator>

namespace rondo::grad {

std::string list_of_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t long_row = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t row = 1;
    while (i + row < ranks.size() && ranks[i + row] == ranks[i] + static_cast<int>(row)) ++row;
    if (row < long_row) row = 1;
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ", ", ranks[i]);
    if (row > 1) fmt::format_to(std::back_inserter(text), "-{}", ranks[i + row - 1]);
    i += row;
  }
  return text;
}

}  // namespace rondo::grad

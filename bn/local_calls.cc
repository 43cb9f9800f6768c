// SPDX-License-Identifier: Apache-2.0
#include "bn/local_calls.h"

#include <fmt/format.h>

#include <algorithm>

namespace rondo::bn {

void NotedLayers::note(std::string_view layer) {
  if (count_ < first_.size()) first_[count_] = layer;
  ++count_;
}

std::string NotedLayers::list() const {
  std::string text;
  for (std::size_t i = 0; i < std::min(count_, first_.size()); ++i) {
    if (i > 0) text += ", ";
    text += first_[i];
  }
  if (count_ > first_.size()) text += fmt::format(" and {} more", count_ - first_.size());
  return text;
}

void LocalCalls::clear() noexcept {
  evaluations.clear();
  local_backwards.clear();
}

std::string LocalCalls::text() const {
  std::string text;
  if (!evaluations.empty()) text += fmt::format("evaluated {}", evaluations.list());
  if (!local_backwards.empty())
    text += fmt::format("{}ran a local backward of {}", text.empty() ? "" : " and ",
                        local_backwards.list());
  return text.empty() ? text : fmt::format("it {} since it last trained", text);
}

}  // namespace rondo::bn

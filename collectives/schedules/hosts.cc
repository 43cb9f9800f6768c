// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/hosts.h"

#include <algorithm>
#include <unordered_map>

namespace rondo::schedules {

Hosts::Hosts(std::span<const int> host_of_rank) {
  if (host_of_rank.empty()) return;
  std::unordered_map<int, int> numbers;
  for (const int name : host_of_rank)
    host_.push_back(numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second);
  first_.assign(numbers.size() + 1, 0);
  for (const int host : host_) ++first_[static_cast<std::size_t>(host) + 1];
  for (std::size_t host = 1; host < first_.size(); ++host) first_[host] += first_[host - 1];
  order_.resize(host_.size());
  place_.resize(host_.size());
  std::vector<int> next(first_.begin(), first_.end() - 1);
  for (int rank = 0; rank < ranks(); ++rank) {
    const int place = next[static_cast<std::size_t>(host(rank))]++;
    place_[static_cast<std::size_t>(rank)] = place;
    order_[static_cast<std::size_t>(place)] = rank;
  }
  in_rank_order_ = std::is_sorted(order_.begin(), order_.end());
}

Hosts Hosts::in_blocks(std::span<const int> ranks_on) {
  std::vector<int> hosts;
  for (std::size_t host = 0; host < ranks_on.size(); ++host)
    hosts.insert(hosts.end(), static_cast<std::size_t>(std::max(0, ranks_on[host])),
                 static_cast<int>(host));
  return Hosts(hosts);
}

int Hosts::most_on_a_host() const noexcept {
  int most = 0;
  for (std::size_t host = 1; host < first_.size(); ++host)
    most = std::max(most, first_[host] - first_[host - 1]);
  return most;
}

}  // namespace rondo::schedules

// SPDX-License-Identifier: Apache-2.0
//
// Which ranks share a host.
#pragma once

#include <span>
#include <vector>

namespace rondo::schedules {

// All ranks must make it from the same grouping, since schedules depend on it. Constant once made,
// so any thread may read it.
class Hosts {
 public:
  Hosts() = default;  // all ranks on one host, any number of them
  // By rank: a number for each rank's host, any number that no other host has. Hosts are counted
  // from 0 in the order of their lowest ranks. So two lists that group the ranks alike make equal
  // objects.
  explicit Hosts(std::span<const int> host_of_rank);
  // The first ranks_on[0] ranks on host 0, the next ranks_on[1] on host 1, and so on.
  static Hosts in_blocks(std::span<const int> ranks_on);

  int count() const noexcept { return first_.empty() ? 1 : static_cast<int>(first_.size()) - 1; }
  // 0 for a default object.
  int ranks() const noexcept { return static_cast<int>(host_.size()); }
  int host(int rank) const noexcept {
    return host_.empty() ? 0 : host_[static_cast<std::size_t>(rank)];
  }
  // The ranks of one host, ascending. Empty for a default object, which knows no number of ranks.
  std::span<const int> on(int host) const noexcept {
    if (first_.empty()) return {};
    const auto begin = static_cast<std::size_t>(first_[static_cast<std::size_t>(host)]);
    return std::span(order_).subspan(
        begin, static_cast<std::size_t>(first_[static_cast<std::size_t>(host) + 1]) - begin);
  }
  // The largest number of ranks on one host; 0 for a default object.
  int most_on_a_host() const noexcept;

  // The ranks in a row, host by host, so that neighbours share a host wherever possible.
  int rank_at(int place) const noexcept {
    return order_.empty() ? place : order_[static_cast<std::size_t>(place)];
  }
  int place_of(int rank) const noexcept {
    return place_.empty() ? rank : place_[static_cast<std::size_t>(rank)];
  }
  // The rank's place among the ranks of its own host.
  int local(int rank) const noexcept {
    return first_.empty() ? rank : place_of(rank) - first_[static_cast<std::size_t>(host(rank))];
  }
  // rank_at(i) == i for every i.
  bool in_rank_order() const noexcept { return in_rank_order_; }

  bool operator==(const Hosts&) const = default;

 private:
  std::vector<int> host_, order_, place_;
  std::vector<int> first_;  // place of each host's first rank; last, the number of ranks
  bool in_rank_order_ = true;
};

}  // namespace rondo::schedules

// SPDX-License-Identifier: Apache-2.0
//
// Which ranks share a host. All ranks must make it from the same numbers: schedules depend on it.
#pragma once

#include <span>
#include <vector>

namespace rondo::schedules {

class Hosts {
 public:
  Hosts() = default;  // all ranks on one host, however many they are
  // By rank: any number that is the same for ranks of one host and for no others. Hosts are counted
  // from 0 by their lowest rank, so two lists that group the ranks alike make equal objects.
  explicit Hosts(std::span<const int> host_of_rank);
  // The first ranks_on[0] ranks on host 0, the next ranks_on[1] on host 1, and so on.
  static Hosts in_blocks(std::span<const int> ranks_on);

  int count() const noexcept { return first_.empty() ? 1 : static_cast<int>(first_.size()) - 1; }
  int ranks() const noexcept {
    return static_cast<int>(host_.size());
  }  // 0 when nothing is known of them
  int host(int rank) const noexcept {
    return host_.empty() ? 0 : host_[static_cast<std::size_t>(rank)];
  }
  // Of one host, ascending. Empty for a default object, whose ranks nobody has counted.
  std::span<const int> on(int host) const noexcept {
    if (first_.empty()) return {};
    const auto begin = static_cast<std::size_t>(first_[static_cast<std::size_t>(host)]);
    return std::span(order_).subspan(
        begin, static_cast<std::size_t>(first_[static_cast<std::size_t>(host) + 1]) - begin);
  }
  // The largest number of ranks on one host; 0 when nothing is known of them.
  int most_on_a_host() const noexcept;

  // The ranks in a row, host by host: neighbours share a host wherever that is possible.
  int rank_at(int place) const noexcept {
    return order_.empty() ? place : order_[static_cast<std::size_t>(place)];
  }
  int place_of(int rank) const noexcept {
    return place_.empty() ? rank : place_[static_cast<std::size_t>(rank)];
  }
  // Place among the ranks of its own host.
  int local(int rank) const noexcept {
    return first_.empty() ? rank : place_of(rank) - first_[static_cast<std::size_t>(host(rank))];
  }
  // rank_at(i) == i everywhere.
  bool in_rank_order() const noexcept { return in_rank_order_; }

  bool operator==(const Hosts&) const = default;

 private:
  std::vector<int> host_, order_, place_;
  std::vector<int> first_;  // place of each host's first rank, and the number of ranks
  bool in_rank_order_ = true;
};

}  // namespace rondo::schedules

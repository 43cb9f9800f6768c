// SPDX-License-Identifier: Apache-2.0
//
// Which ranks are paired with which, and when.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tools/records/hosts.h"

namespace rondo::tools {

// One end of a link: a rank that stands for its host, or for itself.
struct End {
  int rank = 0;
  std::size_t host = 0;  // its place in the list of hosts
};

// Two ends, as places in the list of ends; first < second.
struct Pair {
  std::size_t first = 0, second = 0;
  bool operator==(const Pair&) const = default;
};

using Round = std::vector<Pair>;

// The first rank of each host; with every_rank all ranks, host by host.
std::vector<End> ends_of(std::span<const HostRecord> hosts, bool every_rank);

// Every pair of ends once, in rounds in which each host is in one pair at most. So pairs do not
// share the links of a host. With one end for each of N hosts there are N - 1 rounds, or N when N
// is odd. With R ends on each host there are R * R times as many, and R * (R - 1) / 2 more for the
// pairs within hosts.
std::vector<Round> rounds_of(std::span<const End> ends);

// The given pairs, in their order, each in the first round in which both of its hosts are free.
std::vector<Round> rounds_of(std::span<const End> ends, std::span<const Pair> pairs);

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
//
// Plans over which connections ("paths") a link runs. Both ends compute the plan from the same two
// addresses and must get the same: a pure function, with the address of the lower rank always
// first. Thread-safe.
//
// Ranks of one host have no pairs: they use loopback, or what the filters leave. Ranks of two hosts
// use every pair of interfaces that have addresses in the same network. Each interface is used
// once, and the fastest pair comes first. Without any pair, routing decides. Each pair gets as many
// connections as the rank wants that wants fewer, connect::most_connections in all.
//
// Left out are:
//   loopback;
//   addresses that both hosts have (bridges for containers);
//   interfaces for containers, unless a filter names them;
//   pairs that are more than eight times slower than the fastest.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transports/connect/address.h"

namespace rondo::tcp {

struct PathPlan {
  // Indices in the two lists of endpoints.
  struct Pair {
    std::size_t lower = 0, higher = 0;
  };
  std::vector<Pair> pairs;  // empty: routing decides
  std::size_t paths =
      1;  // 1 to connect::most_connections; path i runs over pair i modulo their number
  // For each endpoint of the lower and of the higher rank: why it is in no pair; empty if it is in
  // one.
  std::vector<std::string> lower_unused, higher_unused;
};
PathPlan plan_paths(const connect::Address& lower, const connect::Address& higher);

// "2 paths: 10.1.0.1 -> 10.1.0.2 (eth0), 10.2.0.1 -> 10.2.0.2 (eth1)", and which interfaces of this
// rank are not used and why. lower: this rank is the lower one. by_routing: the endpoint that is
// tried first when there are no pairs.
std::string describe(const PathPlan& plan, const connect::Address& mine,
                     const connect::Address& theirs, bool lower,
                     const boost::asio::ip::tcp::endpoint& by_routing);

}  // namespace rondo::tcp

// SPDX-License-Identifier: Apache-2.0
//
// Over which connections ("paths") a link runs. Both ends work it out from the same two addresses
// and must come to the same: a pure function, with the address of the lower rank always first.
//
// Ranks of one host: one pair, which is loopback or whatever the filters leave. Ranks of two hosts:
// every pair of interfaces that have addresses in the same network, each interface once, the
// fastest first; without any, one pair by routing. Of each pair as many connections as the rank
// wants that wants fewer. Left out: loopback, an address that both hosts have (a bridge of
// containers), interfaces for
// containers unless a filter names them, and pairs that are more than eight times slower than the
// fastest.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transports/connect/address.h"

namespace rondo::tcp {

struct PathPlan {
  // Places in the two lists of endpoints.
  struct Pair {
    std::size_t lower = 0, higher = 0;
  };
  std::vector<Pair> pairs;  // empty: by routing
  std::size_t paths =
      1;  // 1 to connect::most_connections; path i runs over pair i modulo their number
  // Why an endpoint of the lower and of the higher rank is in no pair; empty for those that are.
  std::vector<std::string> lower_unused, higher_unused;
};
PathPlan plan_paths(const connect::Address& lower, const connect::Address& higher);

// "2 paths: 10.1.0.1 -> 10.1.0.2 (eth0), 10.2.0.1 -> 10.2.0.2 (eth1)", and which interfaces of this
// rank were not taken and why. lower: this rank is the lower one. by_routing: the endpoint that is
// tried first when there are no pairs.
std::string describe(const PathPlan& plan, const connect::Address& mine,
                     const connect::Address& theirs, bool lower,
                     const boost::asio::ip::tcp::endpoint& by_routing);

}  // namespace rondo::tcp

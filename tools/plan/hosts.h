// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rondo::tools {

// The flags that say which ranks of a plan share a host.
struct HostFlags {
  std::string hosts;           // number of hosts, over which ranks are spread evenly
  std::string ranks_per_host;  // ranks on each host (the last has the rest); with commas: a number
                               // for each host
  std::string placement;       // blocks: ranks of a host follow each other; turns: hosts take turns
};

// All throw UsageError.
// Whether the flags give a number of hosts or of ranks on a host.
bool any(const HostFlags& flags);
// The host of each rank; empty unless any().
std::vector<int> hosts_of(const HostFlags& flags, int ranks);
// The number of ranks when --ranks-per-host is a list, otherwise 0.
int ranks_of(const HostFlags& flags);

}  // namespace rondo::tools

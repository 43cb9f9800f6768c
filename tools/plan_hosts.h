// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rondo::tools {

// Which ranks of a plan share a host, as the flags say it.
struct HostFlags {
  std::string hosts;           // how many; ranks are spread evenly
  std::string ranks_per_host;  // or of so many ranks each (the last of the rest); with commas: of
                               // each host by itself
  std::string placement;       // blocks: ranks of a host follow each other; turns: hosts take turns
};

bool any(const HostFlags& flags);
// By rank; empty when nothing is said. Throws UsageError.
std::vector<int> hosts_of(const HostFlags& flags, int ranks);
// That a list of ranks per host makes; 0 for anything else.
int ranks_of(const HostFlags& flags);

}  // namespace rondo::tools

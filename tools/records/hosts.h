// SPDX-License-Identifier: Apache-2.0
//
// The machines of a run, as its record describes them.
#pragma once

#include <rondo/communicator.h>
#include <rondo/info.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/records/record_file.h"

namespace rondo::tools {

struct InterfaceRecord {
  std::string name, address;
  int mbit = 0;  // what the kernel says of its speed; 0: nothing
};

struct HostRecord {
  std::string name, kernel, processor;
  unsigned cores = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<InterfaceRecord> interfaces;  // those that Rondo may use
  std::vector<int> ranks;
};

// A host as it stands in a record.
Json json_of(const HostRecord& host);

// This machine, without its ranks.
HostRecord describe_host(const SystemInfo& info);

// Gathers the hosts of all ranks, in the order of their first ranks. All ranks call it together
// with their own and get the same. Text of other ranks is cut to 200 bytes.
std::vector<HostRecord> gather_hosts(Communicator& communicator, const HostRecord& own);

// "0 to 3", "0, 4 to 7"
std::string ranks_of(const HostRecord& host);

}  // namespace rondo::tools

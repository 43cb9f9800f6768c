// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string>

#include <rondo/types.h>

namespace rondo::tools {

// The flags of `rondo plan --simulate`, as the user typed them.
struct SimulateFlags {
  std::string hosts, placement = "blocks";
  std::string link_latency = "20us", link_rate = "10gbit", link_burst = "0";
  std::string host_latency = "2us", host_rate = "8GB";
  std::string frame_cost = "3us", byte_cost = "0.3ns", reduce_rate = "20GB";
  std::string shared_cores = "0";
  std::string stragglers = "0", straggler_factor = "1", straggler_delay = "0", seed = "1";
  bool straggler_hosts = false;
};

// The flags that other forms of `rondo plan` have too.
struct SimulateCall {
  Collective operation;
  std::string bytes, algorithms, ranks, root, ranks_per_host, cores, depth, segment, json;
  bool reproducible;
};

void add_simulate_flags(CLI::App& command, SimulateFlags& flags);
// Prints a row for each algorithm of the list; without a list, for each algorithm of the operation.
// The row of an algorithm that cannot be simulated says why.
void simulate(const SimulateFlags& flags, const SimulateCall& call);

}  // namespace rondo::tools

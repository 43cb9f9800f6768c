// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string>

#include <rondo/plan.h>

namespace rondo::tools {

// The flags that say which ranks of a plan share a host.
struct HostFlags {
  std::string hosts;                 // number of hosts, over which ranks are spread evenly
  std::string ranks_per_host = "0";  // ranks on each host (the last has the rest); with commas: a
                                     // number for each host
  // blocks: ranks of a host follow each other; turns: hosts take turns
  std::string placement = "blocks";
};

// The flags of `rondo plan`, as the user typed them.
struct PlanFlags {
  std::string operation, algorithm, ranks, root = "0", rank, bytes = "64M";
  std::string segments = "12", depth, credits = "1", cores = "0", segment, json, constants;
  bool check = false, explain = false, simulate = false, reproducible = false;
  HostFlags hosts;
  // For --simulate.
  std::string link_latency = "20us", link_rate = "10gbit", link_burst = "0";
  std::string host_latency = "2us", host_rate = "8GB";
  std::string frame_cost = "3us", byte_cost = "0.3ns", reduce_rate = "20GB", shared_cores = "0";
  std::string stragglers = "0", straggler_factor = "1", straggler_delay = "0", seed = "1";
  bool straggler_hosts = false;
};

// Prints a table of the candidates and, when `json` is not empty, writes that file. "-" writes only
// the JSON, to standard output.
void explain(const PlanQuery& query, const std::string& json);

void add_simulate_flags(CLI::App& command, PlanFlags& flags);
// Prints a row for each algorithm of the list; without a list, for each algorithm of the operation.
// The row of an algorithm that cannot be simulated says why.
void simulate(const PlanFlags& flags, Collective operation);

}  // namespace rondo::tools

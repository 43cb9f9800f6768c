// SPDX-License-Identifier: Apache-2.0
//
// Reads what the variables of torchrun, Open MPI, MPICH/Hydra, Intel MPI and Slurm say about this
// process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <rondo/options.h>

#include "lib/settings/exchange.h"

namespace rondo::settings {

struct Launcher {
  std::string name;  // "torchrun", "Open MPI", "MPICH or Intel MPI", "Slurm"
  int rank = 0;
  int size = 1;
  bool several_hosts = false;
  int local_size = 0;  // ranks on this host; 0: the launcher does not say it
  // Where the ranks join, if the launcher says it (torchrun; Slurm on several hosts).
  std::string url;
  std::string url_problem;  // what is wrong, if torchrun does not say it
  // How rank 0's address gets to the others, on several hosts.
  settings::ExchangeKind exchange = settings::ExchangeKind::none;
  bool asks = false;  // rank and size are known from ranks_of_exchange() only
  // Without a URL: a name that all ranks of this job on this host know, and that no other job has.
  std::string job;
  std::span<const char* const> daemons;  // names of the processes that start ranks
  std::string carry_by;  // how the launcher carries variables to other hosts, for messages
};

// Returns the launcher that has started this process: the nearest one, if several have left
// variables. No value if there is none. Throws Error(invalid_argument) for impossible values and
// for launchers that contradict each other.
std::optional<Launcher> detect_launcher();

// Returns RONDO_RANK and RONDO_SIZE, else the launcher's. If `given` and Rondo's own variables say
// all that joining needs, the launcher's variables are ignored: a shell may have inherited those of
// another job.
struct EnvironmentRanks {
  int rank = -1;
  int size = 0;
  std::string source;  // "RONDO_RANK", "RONDO_SIZE", the launcher's name, or empty
  std::optional<Launcher> launcher;
};
EnvironmentRanks ranks_from_environment(const Options& given);

// Returns how many ranks of all communicators are on this host: RONDO_LOCAL_SIZE, else what the
// launcher says, else 0. Throws Error(invalid_argument) if RONDO_LOCAL_SIZE is no number of ranks.
// Ignores mistakes in other variables.
int ranks_on_host_from_launcher();
// Returns the number of tasks on a node, counted from 0, of Slurm's "4(x2),3"; 0 if the text does
// not say it.
int tasks_on_node(std::string_view tasks, std::int64_t node);

// Returns the first host of "node[003-007,9],other": "node003".
std::string first_host(const std::string& hosts);

}  // namespace rondo::settings

// SPDX-License-Identifier: Apache-2.0
//
// What the variables of torchrun, Open MPI, MPICH/Hydra, Intel MPI and Slurm say about this
// process.
#pragma once

#include <optional>
#include <string>

#include <rondo/options.h>

namespace rondo::lib {

struct Launcher {
  std::string name;  // "torchrun", "Open MPI", "MPICH or Intel MPI", "Slurm"
  int rank = 0;
  int size = 1;
  bool several_hosts = false;
  // Where the ranks meet, when the launcher says it (torchrun; Slurm on several hosts).
  std::string url;
  std::string url_problem;  // why not, when the launcher should have said it
  // Else: a name that all ranks of this job on this host know and no other job has.
  std::string job;
  std::string carry_by;  // how the launcher carries variables to other hosts, for messages
};

// In this order; no value when none of them started this process. Throws Error(invalid_argument).
// for values that cannot be.
std::optional<Launcher> detect_launcher();

// RONDO_RANK and RONDO_SIZE, else the launcher's. The launcher's variables are not looked at when
// `given` and Rondo's own say all that is needed to join: a shell may have inherited some that mean
// another job.
struct EnvironmentRanks {
  int rank = -1;
  int size = 0;
  std::string source;  // "RONDO_RANK", the launcher's name, or nothing
  std::optional<Launcher> launcher;
};
EnvironmentRanks ranks_from_environment(const Options& given);

// The first host of "node[003-007,9],other": "node003".
std::string first_host(const std::string& hosts);

}  // namespace rondo::lib

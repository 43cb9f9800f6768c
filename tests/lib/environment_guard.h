// SPDX-License-Identifier: Apache-2.0
//
// An environment for one test.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "catch.h"
#include "lib/settings/environment.h"
#include "ranks.h"

namespace rondo::tests {

inline constexpr const char* known[] = {"RONDO_RANK",
                                        "RONDO_SIZE",
                                        "RONDO_RENDEZVOUS",
                                        "RONDO_SECRET",
                                        "RONDO_SECRET_FILE",
                                        "RONDO_DEADLINE",
                                        "RONDO_CONNECT_DEADLINE",
                                        "RONDO_TRANSPORT",
                                        "RONDO_INTERFACE",
                                        "RONDO_PORT_RANGE",
                                        "RONDO_ALGORITHM",
                                        "RONDO_HOST",
                                        "RONDO_SEGMENT_BYTES",
                                        "RONDO_DEPTH",
                                        "RONDO_CONNECTIONS",
                                        "RONDO_CONSTANTS",
                                        "RONDO_MEASURE",
                                        "RONDO_STAGING_BYTES",
                                        "RONDO_METRICS",
                                        "RONDO_METRICS_PERIOD",
                                        "RONDO_METRICS_LABELS",
                                        "RONDO_REPRODUCIBLE",
                                        "RONDO_CHECKSUM",
                                        "RONDO_LOCAL_SIZE",
                                        "RONDO_RANKS_ON_HOST",
                                        "RONDO_INTEGRITY",
                                        "RONDO_WAIT",
                                        "RONDO_DUMP",
                                        "RONDO_DUMP_SIGNAL",
                                        "TMPDIR",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_NAMESPACE",
                                        "OMPI_MCA_ess_base_jobid",
                                        "OMPI_MCA_orte_precondition_transports",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMI_FD",
                                        "PMI_PORT",
                                        "PMI_ID",
                                        "MPI_LOCALNRANKS",
                                        "TORCHELASTIC_RUN_ID",
                                        "PMIX_RANK",
                                        "FLUX_TASK_RANK",
                                        "PALS_RANKID",
                                        "JSM_NAMESPACE_RANK",
                                        "JOB_COMPLETION_INDEX",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_STEP_NUM_NODES",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEP_TASKS_PER_NODE",
                                        "SLURM_NODEID",
                                        "XDG_RUNTIME_DIR"};

// Sets exactly these of the variables that matter, until the object is destroyed.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const char* name : known) {
      const char* value = std::getenv(name);
      before_.emplace_back(name,
                           value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(name);
    }
    ::setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_)
      value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }
  const std::string& directory() const noexcept { return directory_.path(); }

 private:
  Directory directory_;
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

inline std::string user_prefix(const Environment& environment) {
  return "file://" + environment.directory() + "/rondo-" + std::to_string(::geteuid()) + "/job-";
}

inline std::string message_of(Errc code, const Options& options = {}) {
  try {
    rendezvous::resolve_place(options);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "no error";
}

inline std::string reading_message() {
  try {
    Options::from_environment();
  } catch (const Error& error) {
    CHECK(error.code() == Errc::invalid_argument);
    return error.what();
  }
  return "no error";
}

}  // namespace rondo::tests

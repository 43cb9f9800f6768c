// SPDX-License-Identifier: Apache-2.0
#include <rondo/info.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <string_view>
#include <utility>

#include <rondo/error.h>
#include <rondo/version.h>

#include "base/cores.h"
#include "base/process.h"
#include "base/processor.h"
#include "collectives/kernels/reduce.h"
#include "lib/rendezvous/rendezvous.h"
#include "lib/settings/reachability.h"

namespace rondo {
namespace {

constexpr std::string_view launcher_prefixes[] = {"RONDO_",
                                                  "OMPI_COMM_WORLD_",
                                                  "PMI_",
                                                  "PMIX_",
                                                  "MPI_LOCAL",
                                                  "SLURM_PROCID",
                                                  "SLURM_NTASKS",
                                                  "SLURM_LOCALID",
                                                  "SLURM_JOB_ID",
                                                  "SLURM_STEP_ID",
                                                  "SLURM_NODELIST",
                                                  "SLURM_STEP_NODELIST",
                                                  "SLURM_STEP_TASKS_PER_NODE",
                                                  "SLURM_NODEID",
                                                  "SLURM_JOB_NODELIST",
                                                  "SLURM_LAUNCH_NODE_IPADDR",
                                                  "SLURM_SRUN_COMM_HOST",
                                                  "TORCHELASTIC_"};
constexpr std::string_view torchrun_names[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

bool concerns_rondo(std::string_view name) {
  return std::ranges::any_of(launcher_prefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::ranges::find(torchrun_names, name) != std::end(torchrun_names);
}

std::vector<VariableInfo> set_variables() {
  std::vector<VariableInfo> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || !concerns_rondo(text.substr(0, equals))) continue;
    VariableInfo variable{std::string(text.substr(0, equals)),
                          std::string(text.substr(equals + 1))};
    if (variable.name == "RONDO_SECRET")
      variable.value = "(a secret of " + std::to_string(variable.value.size()) + " bytes)";
    found.push_back(std::move(variable));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

LimitInfo limit(std::string name, __rlimit_resource resource) {
  LimitInfo info{std::move(name), {}, {}};
  rlimit value{};
  if (::getrlimit(resource, &value) != 0) return info;
  if (value.rlim_cur != RLIM_INFINITY) info.soft = value.rlim_cur;
  if (value.rlim_max != RLIM_INFINITY) info.hard = value.rlim_max;
  return info;
}

}  // namespace

PlaceInfo gather_place(const Options& options) {
  PlaceInfo info;
  try {
    const rendezvous::Place place = rendezvous::resolve_place(options);
    info = PlaceInfo{place.rank, place.size, place.url, place.source, {}};
  } catch (const std::exception& error) {
    info.error = error.what();
  }
  return info;
}

SystemInfo gather_info(const Options& options) {
  SystemInfo info;
  info.version = version();
  info.host = base::host_name();
  info.host_identity = base::host_identity();
  const base::UsableCores cores = base::find_usable_cores();
  info.cores = static_cast<unsigned>(cores.count());
  info.mask_cores = static_cast<unsigned>(cores.mask.count());
  if (cores.quota) {
    info.quota_cores = cores.quota->processors;
    info.quota_file = cores.quota->file;
  }
  info.quota_risk = base::describe_quota_risk(cores);
  info.memory_bytes = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES))) *
                      static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PAGE_SIZE)));
  info.reduce_kernels = base::name_of(base::best_isa());
  settings::RdmaDescription rdma = settings::describe_rdma(options);
  info.rdma_ports = std::move(rdma.ports);
  info.rdma_error = std::move(rdma.filter_error);
  info.transports = settings::describe_transports(rdma.obstacle);
  try {
    info.interfaces = settings::describe_interfaces(options.interfaces);
  } catch (const std::exception& error) {
    info.interface_error = error.what();
  }
  info.limits = {limit("open files", RLIMIT_NOFILE),
                 limit("locked memory (bytes)", RLIMIT_MEMLOCK)};
  info.variables = set_variables();
  info.place = gather_place(options);
  return info;
}

}  // namespace rondo

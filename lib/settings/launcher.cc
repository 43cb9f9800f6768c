// SPDX-License-Identifier: Apache-2.0
//
// Each launcher is a function that reads its variables or finds that there are none. Several may
// have left variables, one started by another, so the nearest one counts. Variables that fit no
// single launcher are an error: a guess would let ranks run alone.
#include "lib/settings/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include <rondo/error.h>

#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "lib/settings/environment.h"
#include "lib/settings/exchange.h"

namespace rondo::settings {
namespace {

constexpr std::int64_t most_ranks = std::numeric_limits<std::int32_t>::max();

int number(const char* name, std::int64_t least, std::int64_t most, int otherwise) {
  return static_cast<int>(whole_variable(name, least, most).value_or(otherwise));
}

// Reads rank and size from two variables, which are both set.
void read_ranks(Launcher& launcher, const char* rank, const char* size) {
  launcher.size = number(size, 1, most_ranks, 1);
  launcher.rank = number(rank, 0, launcher.size - 1, 0);
}

using settings::ExchangeKind;

// Returns the first kind that this launcher offers; none on one host, where a file is enough.
ExchangeKind exchange_of(const Launcher& launcher, std::initializer_list<ExchangeKind> kinds) {
  if (launcher.several_hosts)
    for (const ExchangeKind kind : kinds)
      if (settings::is_offered(kind)) return kind;
  return ExchangeKind::none;
}

// Reads how many ranks are on this host. Without the variable there is one host.
void read_local_size(Launcher& launcher, const char* name) {
  launcher.local_size = number(name, 1, most_ranks, 0);
  launcher.several_hosts = launcher.local_size > 0 && launcher.local_size < launcher.size;
}

constexpr std::array open_mpi_daemons = {"orted",   "prted",   "mpirun",
                                         "mpiexec", "orterun", "prterun"};
constexpr std::array hydra_daemons = {"hydra_pmi_proxy", "pmi_proxy", "mpiexec", "mpirun", "hydra"};
constexpr std::array slurm_daemons = {"slurmstepd"};

// Returns how many generations above this process one of the daemons is, from 1, and its number. A
// rank may be the child of a shell script that the launcher started.
std::optional<std::pair<int, int>> ancestor(std::span<const char* const> daemons) {
  int next = ::getppid();
  for (int generation = 1; generation <= 16 && next > 1; ++generation) {
    const auto status = base::read_process(next);
    if (!status) break;
    if (std::ranges::any_of(daemons,
                            [&](const char* name) { return status->name.starts_with(name); }))
      return std::pair{generation, next};
    next = status->parent;
  }
  return std::nullopt;
}

// Names the process that started all ranks of this host: the daemon, else the parent.
std::string starter(std::span<const char* const> daemons) {
  const auto found = ancestor(daemons);
  const int process = found ? found->second : ::getppid();
  const auto status = base::read_process(process);
  return std::to_string(process) + "-" + std::to_string(status ? status->start_time : 0);
}

bool is_url(const std::string& rendezvous) {
  return !rendezvous.empty() && rendezvous != "env://";
}

// Returns torchrun's URL.
std::string master_url() {
  const auto address = variable("MASTER_ADDR");
  auto port = whole_variable("MASTER_PORT", 1, 65535);
  if (!address || !port)
    throw Error(
        Errc::invalid_argument,
        std::string("RANK and WORLD_SIZE are set, but ") +
            (address ? "MASTER_PORT" : "MASTER_ADDR") +
            " is not: set MASTER_ADDR and MASTER_PORT to where rank 0 runs, or RONDO_RENDEZVOUS");
  // With TORCHELASTIC_USE_AGENT_STORE torchrun's own agent listens on MASTER_PORT.
  if (variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True")
    port = *port == 65535 ? 65534 : *port + 1;
  const bool brackets = address->find(':') != std::string::npos && address->front() != '[';
  return "tcp://" + (brackets ? "[" + *address + "]" : *address) + ":" + std::to_string(*port);
}

std::optional<Launcher> torchrun() {
  if (!variable("RANK") || !variable("WORLD_SIZE")) return std::nullopt;
  Launcher launcher;
  launcher.name = "torchrun";
  read_ranks(launcher, "RANK", "WORLD_SIZE");
  read_local_size(launcher, "LOCAL_WORLD_SIZE");
  launcher.carry_by = "export both before torchrun on every host";
  if (launcher.size == 1) return launcher;
  // A mistake here matters only if the URL is needed.
  try {
    launcher.url = master_url();
  } catch (const Error& error) {
    launcher.url_problem = error.what();
  }
  return launcher;
}

std::optional<Launcher> open_mpi() {
  if (!variable("OMPI_COMM_WORLD_RANK") || !variable("OMPI_COMM_WORLD_SIZE")) return std::nullopt;
  Launcher launcher;
  launcher.name = "Open MPI";
  read_ranks(launcher, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  read_local_size(launcher, "OMPI_COMM_WORLD_LOCAL_SIZE");
  launcher.exchange = exchange_of(launcher, {ExchangeKind::pmix});
  launcher.carry_by = "mpirun -x RONDO_RENDEZVOUS -x RONDO_SECRET";
  for (const char* name :
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_precondition_transports"})
    if (const auto value = variable(name)) launcher.job.append("-").append(*value);
  if (launcher.job.empty()) launcher.job.append("-").append(starter(open_mpi_daemons));
  launcher.job.insert(0, "openmpi");
  launcher.daemons = open_mpi_daemons;
  return launcher;
}

// hydra: true for Hydra itself, which says how many ranks are on this host; false for other
// launchers that use its protocol.
std::optional<Launcher> mpich(bool hydra) {
  const bool ranks_known = variable("PMI_RANK") && variable("PMI_SIZE");
  const bool asks = !ranks_known && variable("PMI_PORT") && variable("PMI_ID");
  if (!ranks_known && !asks) return std::nullopt;
  if (hydra != variable("MPI_LOCALNRANKS").has_value()) return std::nullopt;
  Launcher launcher;
  launcher.name = "MPICH or Intel MPI";
  if (ranks_known) read_ranks(launcher, "PMI_RANK", "PMI_SIZE");
  launcher.asks = asks;
  read_local_size(launcher, "MPI_LOCALNRANKS");
  launcher.exchange = exchange_of(launcher, {ExchangeKind::pmi});
  launcher.carry_by = "mpiexec -genvlist RONDO_RENDEZVOUS,RONDO_SECRET";
  launcher.job = "hydra-" + starter(hydra_daemons);
  launcher.daemons = hydra_daemons;
  return launcher;
}

// The port is below those that Linux gives to outgoing connections, and equal on all ranks of the
// step.
int slurm_port(std::uint64_t job, std::uint64_t step) {
  constexpr std::uint64_t first = 15'000, count = 17'000;
  return static_cast<int>(first + (job * 31 + step * 7) % count);
}

std::optional<Launcher> slurm() {
  const auto hosts = variable("SLURM_STEP_NODELIST");
  // A batch script has SLURM_PROCID too, but it is not a task of a step.
  if (!variable("SLURM_PROCID") || !variable("SLURM_NTASKS") ||
      (!hosts && !variable("SLURM_STEP_ID")))
    return std::nullopt;
  Launcher launcher;
  launcher.name = "Slurm";
  launcher.daemons = slurm_daemons;
  read_ranks(launcher, "SLURM_PROCID",
             variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
  const bool list = hosts && hosts->find_first_of(",[") != std::string::npos;
  launcher.several_hosts = number("SLURM_STEP_NUM_NODES", 1, most_ranks, list ? 2 : 1) > 1;
  launcher.local_size = tasks_on_node(variable("SLURM_STEP_TASKS_PER_NODE").value_or(""),
                                      number("SLURM_NODEID", 0, most_ranks, 0));
  launcher.exchange = exchange_of(launcher, {ExchangeKind::pmi, ExchangeKind::pmix});
  launcher.carry_by = "srun --export=ALL; srun --mpi=pmi2 carries one by itself";
  constexpr std::int64_t most_id = std::numeric_limits<std::uint32_t>::max();
  const auto job =
      static_cast<std::uint64_t>(whole_variable("SLURM_JOB_ID", 0, most_id).value_or(0));
  const auto step =
      static_cast<std::uint64_t>(whole_variable("SLURM_STEP_ID", 0, most_id).value_or(0));
  if (!launcher.several_hosts)
    launcher.job = "slurm-" + std::to_string(job) + "-" + std::to_string(step);
  else if (hosts)
    launcher.url = "tcp://" + first_host(*hosts) + ":" + std::to_string(slurm_port(job, step));
  return launcher;
}

// Refuses a rank without a size, or a size without a rank: a mistake in the job's script. Without
// this check the process would run alone and look healthy.
void refuse_halves() {
  constexpr std::pair<const char*, const char*> pairs[] = {
      {"RANK", "WORLD_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank, size] : pairs) {
    if (variable(rank) && !variable(size))
      refuse_variable(rank, *variable(rank),
                      fmt::format("{} is not set; set both, or neither to run alone", size));
    if (!variable(rank) && whole_variable(size, 1, most_ranks).value_or(1) > 1)
      refuse_variable(size, *variable(size),
                      fmt::format("{} is not set; set both, or neither to run alone", rank));
  }
}

}  // namespace

std::string first_host(const std::string& hosts) {
  std::string host;
  for (std::size_t i = 0; i < hosts.size() && hosts[i] != ','; ++i) {
    if (hosts[i] != '[') {
      host += hosts[i];
      continue;
    }
    const auto close = hosts.find(']', i);
    if (close == std::string::npos) break;
    const std::string inside = hosts.substr(i + 1, close - i - 1);
    host += inside.substr(0, inside.find_first_of("-,"));
    i = close;
  }
  return host;
}

int tasks_on_node(std::string_view tasks, std::int64_t node) {
  for (const std::string_view part : base::split(tasks, ',')) {
    const auto open = std::min(part.find("(x"), part.size());
    const auto count = base::parse_whole<std::int32_t>(part.substr(0, open));
    std::optional<std::int64_t> nodes = 1;
    if (open < part.size())
      nodes = part.ends_with(')')
                  ? base::parse_whole<std::int64_t>(part.substr(open + 2, part.size() - open - 3))
                  : std::nullopt;
    if (!count || *count < 0 || !nodes || *nodes < 1) return 0;
    if (node < *nodes) return *count;
    node -= *nodes;
  }
  return 0;
}

int ranks_on_host_from_launcher() {
  if (const auto size = whole_variable("RONDO_LOCAL_SIZE", 1, most_ranks))
    return static_cast<int>(*size);
  try {
    const auto launcher = detect_launcher();
    return launcher ? launcher->local_size : 0;
  } catch (const Error&) {  // variables of another job; if of this one, resolve_place() has thrown
    return 0;
  }
}

namespace {

// With Hydra's -pmi-port a process learns its rank over PMI only.
void ask_for_ranks(Launcher& launcher) {
  if (!launcher.asks) return;
  const settings::RanksOfExchange ranks = settings::ranks_of_exchange();
  launcher.rank = ranks.rank;
  launcher.size = ranks.size;
  launcher.several_hosts = launcher.local_size > 0 && launcher.local_size < launcher.size;
  launcher.exchange = exchange_of(launcher, {ExchangeKind::pmi});
  launcher.asks = false;
}

bool agree(const Launcher& one, const Launcher& other) {
  return one.rank == other.rank && one.size == other.size;
}

[[noreturn]] void refuse_both(const Launcher& one, const Launcher& other, std::string_view remedy) {
  throw Error(
      Errc::invalid_argument,
      fmt::format("the variables of {} say rank {} of {}, those of {} say rank {} of {}: {}; "
                  "or set RONDO_RANK, RONDO_SIZE and RONDO_RENDEZVOUS yourself",
                  one.name, one.rank, one.size, other.name, other.rank, other.size, remedy));
}

// Returns the launcher whose daemon is the nearest ancestor: it has started this process, and the
// variables of others are left from a job around it. Hydra and mpirun may start their daemons with
// srun, which leaves Slurm's variables behind, and srun may set PMI_RANK for MPI programs. So if no
// ancestor is a known daemon, the order of the list decides.
std::optional<Launcher> nearest_mpi() {
  std::vector<Launcher> found;
  for (const auto& read :
       {open_mpi, +[] { return mpich(true); }, slurm, +[] { return mpich(false); }})
    if (auto launcher = read()) found.push_back(std::move(*launcher));
  if (found.empty()) return std::nullopt;
  const auto distance = [](const Launcher& launcher) {
    const auto daemon = ancestor(launcher.daemons);
    return daemon ? daemon->first : std::numeric_limits<int>::max();
  };
  const auto nearest = std::ranges::min_element(found, {}, distance);
  const bool known = distance(*nearest) != std::numeric_limits<int>::max();
  if (!known && found.size() > 1 && found[0].name == "Open MPI" &&
      found[1].name == "MPICH or Intel MPI" && !agree(found[0], found[1]))
    refuse_both(found[0], found[1], "unset those that are left over");
  return std::move(*nearest);
}

// Chooses between RANK and WORLD_SIZE and the variables of another launcher. If the former are left
// over in a shell, each process that mpirun starts would be alone. But a process of the launcher
// may have started several ranks of its own, numbered in blocks or in turns.
std::optional<Launcher> nearer(std::optional<Launcher> torch, std::optional<Launcher> mpi) {
  if (!torch || !mpi) return torch ? torch : mpi;
  ask_for_ranks(*mpi);
  if (agree(*torch, *mpi)) return torch->url_problem.empty() ? torch : mpi;
  const int each = torch->size / mpi->size;
  const bool some_for_each =
      torch->size % mpi->size == 0 && each > 1 &&
      (torch->rank / each == mpi->rank || torch->rank % mpi->size == mpi->rank);
  if (!some_for_each)
    refuse_both(*torch, *mpi,
                "unset RANK and WORLD_SIZE if they are left over (env -u RANK -u WORLD_SIZE)");
  return torch;
}

}  // namespace

std::optional<Launcher> detect_launcher() {
  auto torch = torchrun();
  // Only torchrun sets this variable.
  if (torch && variable("TORCHELASTIC_RUN_ID")) return torch;
  auto launcher = nearer(std::move(torch), nearest_mpi());
  if (!launcher) refuse_halves();
  return launcher;
}

namespace {

// RONDO_RANK or RONDO_SIZE may be left over in a shell. Then all processes of a launcher would be
// one rank. A process of `rondo run` has RONDO_LOCAL_RANK: there the launcher's variables are the
// ones left over.
void warn_about_leftovers(const Options& given, std::optional<std::int64_t> rank,
                          std::optional<std::int64_t> size) {
  if (variable("RONDO_LOCAL_RANK") || !(rank || size)) return;
  std::optional<Launcher> launcher;
  try {
    launcher = detect_launcher();
  } catch (const Error&) {  // its variables are not used
  }
  if (!launcher || launcher->asks) return;
  std::string text;
  if (given.rank < 0 && rank && *rank != launcher->rank)
    text = fmt::format("RONDO_RANK={} is used, although {} says rank {}", *rank, launcher->name,
                       launcher->rank);
  if (given.size == 0 && size && *size != launcher->size)
    text += fmt::format("{}RONDO_SIZE={} is used, although {} says {} ranks",
                        text.empty() ? "" : "; ", *size, launcher->name, launcher->size);
  if (text.empty()) return;
  static std::once_flag told;
  std::call_once(told, [&] {
    base::log_line(base::LogLevel::warning,
                   text + ". Unset it (env -u RONDO_RANK -u RONDO_SIZE) if it is left over");
  });
}

// Refuses to run alone where an unknown launcher seems to have started several processes.
void refuse_unknown() {
  constexpr std::pair<const char*, const char*> launchers[] = {
      {"PMIX_RANK", "the number of ranks"},
      {"FLUX_TASK_RANK", "$FLUX_JOB_SIZE"},
      {"PALS_RANKID", "the number of ranks"},
      {"JSM_NAMESPACE_RANK", "$JSM_NAMESPACE_SIZE"},
      {"JOB_COMPLETION_INDEX", "the completions of the Job"}};
  for (const auto& [rank, size] : launchers)
    if (const auto value = variable(rank))
      refuse_variable(
          rank, *value,
          fmt::format("a launcher that Rondo does not know has started this process; set "
                      "RONDO_RANK=${}, RONDO_SIZE to {}, RONDO_RENDEZVOUS=tcp://HOST:PORT with the "
                      "host of rank 0, and RONDO_SECRET (RONDO_RANK=0 RONDO_SIZE=1 to run alone)",
                      rank, size));
}

}  // namespace

EnvironmentRanks ranks_from_environment(const Options& given) {
  EnvironmentRanks ranks;
  const auto rank = whole_variable("RONDO_RANK", 0, most_ranks - 1);
  const auto size = whole_variable("RONDO_SIZE", 1, most_ranks);
  const bool ranks_known = (given.rank >= 0 || rank) && (given.size > 0 || size);
  const bool alone = ranks_known && (given.size > 0 ? given.size : *size) == 1;
  const bool place_known = given.store != nullptr || is_url(given.rendezvous) ||
                           is_url(variable("RONDO_RENDEZVOUS").value_or(""));
  if (!ranks_known || !(alone || place_known)) ranks.launcher = detect_launcher();
  if (!ranks_known && !ranks.launcher) refuse_unknown();
  if (ranks.launcher) ask_for_ranks(*ranks.launcher);
  warn_about_leftovers(given, rank, size);
  if (rank || size) {
    if (rank) ranks.rank = static_cast<int>(*rank);
    if (size) ranks.size = static_cast<int>(*size);
    ranks.source = rank ? "RONDO_RANK" : "RONDO_SIZE";
  }
  if (ranks.launcher) {
    if (ranks.rank < 0) ranks.rank = ranks.launcher->rank;
    if (ranks.size == 0) ranks.size = ranks.launcher->size;
    if (ranks.source.empty()) ranks.source = ranks.launcher->name;
  }
  return ranks;
}

}  // namespace rondo::settings

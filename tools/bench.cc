// SPDX-License-Identifier: Apache-2.0
//
// rondo bench: joins the ranks that a launcher has started, or starts ranks on this host.
#include <rondo/error.h>
#include <rondo/info.h>

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "tools/bench/bench.h"
#include "tools/bench/early_end.h"
#include "tools/bench/flags.h"
#include "tools/bench/session.h"
#include "tools/measure/gpu.h"
#include "tools/pairs/pairs.h"
#include "tools/ranks/spawn.h"
#include "tools/records/record_file.h"
#include "tools/records/result_file.h"
#include "tools/shared/commands.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr int default_ranks = 4, default_pair = 2;

// Launchers set these variables for each process: some that the library does not know by name, and
// known ones that leave out the rank or the number of ranks.
constexpr std::array foreign{
    "RANK",         "LOCAL_RANK",          "OMPI_COMM_WORLD_RANK", "PMI_RANK",       "PMI_ID",
    "SLURM_PROCID", "MV2_COMM_WORLD_RANK", "ALPS_APP_PE",          "MPI_LOCALRANKID"};

// Slurm sets SLURM_PROCID to 0 in a batch script too, which is one process.
bool is_batch_script(std::string_view name, std::string_view value) {
  return name == "SLURM_PROCID" && value == "0";
}

// Finds the place that a launcher (rondo run, mpirun, srun, torchrun) gave this process. Returns
// nothing when no launcher started it. Throws UsageError when a launcher started it but its
// variables do not give rank and size: otherwise each process would start a benchmark of its own.
std::optional<PlaceInfo> find_launch(const Options& options) {
  PlaceInfo place = gather_place(options);
  if (!place.error.empty()) throw UsageError(place.error);
  if (place.source != "alone") return place;
  for (const char* name : foreign) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0' || is_batch_script(name, value)) continue;
    throw UsageError(
        fmt::format("{}={} is set, so a launcher seems to have started this process, but its "
                    "variables do not give both the rank and the number of ranks; set RONDO_RANK, "
                    "RONDO_SIZE and RONDO_RENDEZVOUS, or unset {} to start ranks from here",
                    name, value, name));
  }
  return {};
}

// Whether the run prints to the standard output.
bool writes_output(const BenchOptions& options) {
  return options.shows_table() || is_standard_output(options.json) ||
         is_standard_output(options.csv) || is_standard_output(options.jsonl) ||
         (options.pairs && is_standard_output(options.pairs->svg));
}

// For pairs only rank 0 talks to all others, and nothing is measured while connecting: a dead link
// must not end a run that looks for it.
Options connect_options(const BenchOptions& options) {
  Options connect = options.connect;
  if (options.pairs && connect.algorithm.empty()) connect.algorithm = "star";
  if (options.pairs && !connect.measure) connect.measure = false;
  return connect;
}

int measure(const BenchOptions& options, EarlyEnd& early_end) {
  Communicator communicator = Communicator::connect(connect_options(options));
  const Guarded guarded(early_end, communicator);
  Session session(options, communicator, early_end);
  try {
    if (options.pairs) return run_pairs(session, *options.pairs);
    return options.seconds ? run_soak(session) : run_bench(session);
  } catch (const std::exception& error) {
    session.fail(error.what());
    throw;
  }
}

// A rank that was asked to end, or that another one has ended, did not fail: it says so in one line
// on rank 0, and on no other.
int end_early(EarlyEnd& early_end, const PlaceInfo& place, const Error& error) {
  if (early_end.output_is_closed()) throw OutputLost(EPIPE);
  if (place.rank == 0)
    say("rondo bench: ended early: {}; the results so far are kept\n",
        early_end.signal() != 0 ? describe_end(early_end.signal()) : error.what());
  return early_end.signal() != 0 ? exit_of_signal(early_end.signal())
         : place.rank == 0       ? exit_failed
                                 : exit_fine;
}

int be_rank(const BenchOptions& options, const PlaceInfo& place) {
  EarlyEnd early_end(place.rank == 0 && writes_output(options));
  try {
    const int status = measure(options, early_end);
    if (status == exit_of_signal(SIGPIPE) && place.rank == 0) throw OutputLost(EPIPE);
    return status;
  } catch (const OutputLost&) {
    throw;
  } catch (const UsageError& error) {
    if (place.rank == 0) say("rondo bench: {}\n", error.what());
    return exit_usage;
  } catch (const Error& error) {
    // Only an EarlyEnd aborts a communicator of the benchmark.
    if (error.code() == Errc::aborted || early_end.has_come())
      return end_early(early_end, place, error);
    say("rondo bench: rank {}: {}\n", place.rank, error.what());
  } catch (const std::exception& error) {
    say("rondo bench: rank {}: {}\n", place.rank, error.what());
  }
  return exit_failed;
}

int run_rank(BenchOptions& options, const PlaceInfo& place) {
  if (options.ranks && *options.ranks != place.size)
    throw UsageError(
        fmt::format("--ranks {}: {} says that the number of ranks is {}; leave --ranks out",
                    *options.ranks, place.source, place.size));
  // Ranks of rondo bench itself have its flags.
  if (options.binding && place.source != "RONDO_RANK")
    throw UsageError(
        fmt::format("--bind: {} has started the ranks, so it binds them; leave --bind out, and "
                    "tell {} (mpirun --bind-to, srun --cpu-bind)",
                    place.source, place.source));
  settle(options, place.size, place.rank);
  if (place.size == 1 && !options.pairs)
    say("rondo bench: {}: nothing will cross a link, so there is no bus bandwidth. {}\n",
        options.ranks ? "--ranks 1" : place.source + " says that there is 1 rank",
        options.ranks
            ? "Measure with --ranks 2 or more"
            : "Start more (mpirun -n 4, srun -n 4, rondo run -n 4), or use no launcher: then "
              "rondo bench starts its own ranks");
  return be_rank(options, place);
}

int start_ranks(BenchOptions& options, const std::vector<std::string>& command) {
  const int ranks = options.ranks.value_or(options.between_pairs() ? default_pair : default_ranks);
  settle(options, ranks);
  try_files(options);
  Options ranks_options = options.connect;
  if (ranks_options.interfaces.empty())
    ranks_options.interfaces = {"lo"};  // as spawn_ranks() sets it
  const SystemInfo info = gather_info(ranks_options);
  if (!info.interface_error.empty()) throw UsageError(info.interface_error);
  if (options.device.on_gpus) choose_gpus(options.device, {ranks, options.buffer_bytes()});
  const double needed = 2.0 * static_cast<double>(options.conditions.largest) *
                        static_cast<double>(options.most_calls()) * ranks;
  if (info.memory_bytes > 0 && needed > static_cast<double>(info.memory_bytes))
    throw UsageError(
        fmt::format("--maxbytes {}{}: {} ranks need {} for their buffers, this machine has {}",
                    base::describe_bytes(options.conditions.largest),
                    options.most_calls() > 1
                        ? fmt::format(", {} {}", options.calls_flag(), options.most_calls())
                        : "",
                    ranks, base::describe_bytes(static_cast<std::uint64_t>(needed)),
                    base::describe_bytes(info.memory_bytes)));
  SpawnOptions spawn;
  spawn.ranks = ranks;
  spawn.command = command;
  spawn.name = "rondo bench";
  spawn.explained = true;
  spawn.binding = options.binding;
  return spawn_ranks(spawn);
}

constexpr std::string_view about_ranks =
    "Without a launcher it starts its ranks on this host. Under mpirun, srun, torchrun or\n"
    "rondo run it joins the ranks that these started. The flags are those of nccl-tests. Flags\n"
    "without an effect here are accepted with the value that Rondo has anyway: -g 1 -z 1 -a 3.\n";
constexpr std::string_view about_rows =
    "\n"
    "latency, bandwidth, bibandwidth and rate have the shapes of osu_latency, osu_bw, osu_bibw "
    "and\n"
    "osu_mbw_mr:\n"
    "  latency      half of the round trip of a message between rank 0 and rank 1\n"
    "  bandwidth    a window of messages from rank 0 to rank 1\n"
    "  bibandwidth  a window in each direction at once; figures are sums of both directions\n"
    "  rate         a window from rank i to rank i + n/2, for all i below n/2 at once; figures "
    "are\n"
    "               sums of all pairs\n"
    "All receives of a window are called before its first send, and a rank that has all "
    "messages\n"
    "answers with an empty one. Times are those of one message: an iteration over --window.\n"
    "\n"
    "pairs (docs/pairs.md): every pair of hosts, in rounds in which each host is in one pair. A\n"
    "link is an outlier when its bandwidth is below the median by 15 percent and three standard\n"
    "deviations, or below half of it, and likewise when its latency is above the median by 20\n"
    "percent, 20 us and three deviations, or above three times the median and 500 us. Suspects\n"
    "are measured again, and the best value counts. A host is named when most of its links in\n"
    "one direction are outliers, else the link. An outlier alone does not change the exit "
    "status:\n"
    "see --fail-outliers.\n"
    "\n"
    "%ceil is in percent of a ceiling. The table names it below %ceil, the files in ceiling_of:\n"
    "  sockets  busbw of plain TCP sockets over the same links at once; sums as above\n"
    "  device   where all ranks use RDMA: busbw of bare writes of their devices at once\n"
    "  cores    where all ranks share memory, for all_reduce without --allocate and -m: busbw "
    "of\n"
    "           an all-reduce that only brings data from core to core and sums it\n"
    "  gpu      with --device cuda: memory traffic, the bytes that all ranks must load and "
    "store\n"
    "           together, over p50; the ceiling is what copies of 256 MiB (or a 64th of a "
    "smaller\n"
    "           GPU's memory) within the GPUs reach, all GPUs at once, on one rank of each. A\n"
    "           staged operation reaches less: two lines above the table say what copies "
    "between\n"
    "           the GPU and pinned memory reach\n"
    "  memcpy   in all other cases where all ranks share memory: memory traffic, the bytes\n"
    "           that they must load and store together, over p50; the ceiling is what they\n"
    "           reach when all memcpy as many bytes at once\n"
    "The ceiling is measured before and after each row; the better one counts.\n"
    "Bytes to load and store (S: size, n: ranks, in brackets: only out of place):\n"
    "  all_reduce, sendrecv                      2nS\n"
    "  --one-way, bandwidth, bibandwidth, rate   2S for each message\n"
    "  reduce, reduce_scatter, reduce_scatter_v  (n+1)S\n"
    "  broadcast, all_gather, all_gather_v       2(n-1)S (+2S)\n"
    "  all_to_all                                2(n-1)S (+2S)\n"
    "  gather, scatter                           2(n-1)/n S (+2S/n)\n";

}  // namespace

void add_bench(CLI::App& app, std::vector<std::string> own, int& exit_code) {
  auto* command = app.add_subcommand(
      "bench", "Measure an operation: time, bandwidth, and whether every result is right");
  auto flags = std::make_shared<BenchFlags>();
  flags->add_to(*command);
  command->footer(std::string(about_ranks) + std::string(exit_statuses) + std::string(about_rows));
  command->callback([flags, own = std::move(own), &exit_code] {
    BenchOptions options = interpret(*flags);
    options.command = own;
    const auto place = find_launch(options.connect);
    exit_code = place ? run_rank(options, *place) : start_ranks(options, own);
  });
}

}  // namespace rondo::tools

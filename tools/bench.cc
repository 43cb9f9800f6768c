// SPDX-License-Identifier: Apache-2.0
#include <rondo/info.h>
#include <rondo/version.h>

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "tools/agree.h"
#include "tools/bench_options.h"
#include "tools/ceiling.h"
#include "tools/commands.h"
#include "tools/copy_ceiling.h"
#include "tools/launch.h"
#include "tools/measure.h"
#include "tools/report.h"
#include "tools/report_file.h"
#include "tools/spawn.h"
#include "tools/text.h"

namespace rondo::tools {
namespace {

constexpr int default_ranks = 4;
constexpr int most_peers_shown = 4;

// One rank of the benchmark, connected.
class Bench {
 public:
  Bench(const BenchOptions& options, Communicator communicator)
      : options_(options), communicator_(std::move(communicator)), progress_(communicator_.rank() == 0) {
    setting_.operation = options.operation;
    setting_.ranks = communicator_.size();
    setting_.reduces = options.reduces();
    setting_.checked = options.check;
    setting_.allocated = options.allocate;
  }
  int run();

 private:
  bool is_first() const { return communicator_.rank() == 0; }
  void agree_on_files();
  void find_transports();
  void describe();
  void describe_peers();
  void measure_all(Measurement& measurement);
  void measure_size(Measurement& measurement, std::uint64_t bytes);
  int verdict() const;

  const BenchOptions& options_;
  Communicator communicator_;
  Setting setting_;
  Progress progress_;
  std::string now_;  // what is being measured, for the progress line
  std::vector<Row> rows_;
};

// Rank 0 tries the files before anything is measured, and all stop when it cannot write them.
void Bench::agree_on_files() {
  std::string trouble;
  try {
    if (is_first()) try_file("--json", options_.json);
    if (is_first()) try_file("--csv", options_.csv);
    if (is_first()) try_file("--write-constants", options_.constants);
  } catch (const UsageError& error) {
    trouble = error.what();
  }
  if (maximum_over_ranks(communicator_, trouble.empty() ? 0 : 1) == 0) return;
  throw UsageError(is_first() ? trouble : "rank 0 cannot write its files");
}

// The transports over which any of the ranks reaches another.
void Bench::find_transports() {
  std::vector<std::string> names, used;
  for (const TransportInfo& transport : gather_info(options_.connect).transports)
    names.push_back(transport.name);
  std::vector<double> uses(names.size(), 0);
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    const std::string how = communicator_.describe_peer(peer);
    for (std::size_t i = 0; i < names.size(); ++i)
      if (how.substr(0, how.find(',')) == names[i]) uses[i] = 1;
  }
  maximum_over_ranks(communicator_, uses);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (uses[i] > 0) used.push_back(names[i]);
  setting_.transport = used.empty() ? "none" : join(used, "+");
  setting_.shared_memory = setting_.transport == "shm";
}

// Where rank 0 has several connections to a peer, how; most tables are the same for all, so a few are enough.
void Bench::describe_peers() {
  int shown = 0;
  for (int peer = 1; peer < communicator_.size() && shown < most_peers_shown; ++peer) {
    const std::string how = communicator_.describe_peer(peer);
    if (how.find(" paths") == std::string::npos) continue;
    fmt::print("# rank 0 to rank {}: {}\n", peer, how);
    ++shown;
  }
}

// The hosts, each with the number of its ranks.
void Bench::describe() {
  using Name = std::array<char, 64>;
  std::vector<Name> hosts(static_cast<std::size_t>(communicator_.size()));
  Name& mine = hosts[static_cast<std::size_t>(communicator_.rank())];
  mine = {};
  const std::string host = gather_info(options_.connect).host;
  host.copy(mine.data(), mine.size() - 1);
  communicator_
      .all_gather(Buffer{mine.data(), mine.size(), DType::u8, -1},
                  Buffer{hosts.data(), hosts.size() * mine.size(), DType::u8, -1})
      .wait();
  if (!is_first()) return;
  fmt::print("# rondo {}: {} over {}, {} {}{}\n", version(), name_of(options_.operation), setting_.transport,
             setting_.ranks, setting_.ranks == 1 ? "rank" : "ranks",
             setting_.allocated ? ", buffers from Communicator::allocate" : "");
  for (std::size_t first = 0, end; first < hosts.size(); first = end) {
    for (end = first + 1; end < hosts.size() && hosts[end] == hosts[first];) ++end;
    hosts[first].back() = 0;
    fmt::print("# ranks {} to {} on {}\n", first, end - 1, hosts[first].data());
  }
  describe_peers();
}

void Bench::measure_size(Measurement& measurement, std::uint64_t bytes) {
  now_ = format_bytes(bytes);
  const Row out_of_place = measurement.measure(bytes, false);
  rows_.push_back(out_of_place);
  std::optional<Row> in_place;
  if (options_.operation != Collective::barrier) {
    in_place = measurement.measure(bytes, true);
    rows_.push_back(*in_place);
  }
  progress_.erase();
  if (is_first()) print_rows(setting_, out_of_place, in_place);
}

void Bench::measure_all(Measurement& measurement) {
  for (const DType type : options_.types)
    for (const ReduceOp op : options_.ops) {
      if (!supports(type, op)) continue;
      for (const int root : options_.roots) {
        measurement.choose(type, op, root);
        for (const std::uint64_t bytes : options_.sizes) measure_size(measurement, bytes);
      }
    }
}

int Bench::verdict() const {
  int status = exit_fine;
  for (const Row& row : rows_) {
    if (row.wrong > 0) {
      fmt::print(stderr, "rondo bench: {}: {} wrong elements\n", describe_row(setting_, row), row.wrong);
      status = exit_missed;
    }
    // A row without bytes has no bandwidth.
    if (options_.min_bandwidth && row.bytes > 0 && row.busbw < *options_.min_bandwidth) {
      fmt::print(stderr, "rondo bench: {}: {:.4g} GB/s bus bandwidth, below --min-bandwidth {:.4g}\n",
                 describe_row(setting_, row), row.busbw, *options_.min_bandwidth);
      status = exit_missed;
    }
  }
  return status;
}

int Bench::run() {
  agree_on_files();
  find_transports();
  describe();
  std::unique_ptr<Ceiling> ceiling;
  if (options_.ceiling && communicator_.size() > 1) {
    progress_.show(setting_.shared_memory ? "measuring what memcpy reaches"
                                          : "measuring what plain sockets reach");
    if (setting_.shared_memory)
      ceiling = std::make_unique<CopyCeiling>(communicator_);
    else
      ceiling = std::make_unique<SocketCeiling>(communicator_, options_.connect);
    setting_.ceiling = ceiling->measure();
    progress_.erase();
    if (!ceiling->trouble().empty())
      fmt::print(stderr, "rondo bench: rank {}: the ceiling was not measured: {}\n", communicator_.rank(),
                 ceiling->trouble());
  }
  if (is_first()) print_header(setting_);
  Measurement measurement(communicator_, options_, [this](std::uint64_t iteration, std::uint64_t of) {
    if (progress_.active()) progress_.show(fmt::format("{}: iteration {} of {}", now_, iteration + 1, of));
  });
  measure_all(measurement);
  const double ceiling_after = ceiling ? ceiling->measure() : 0;
  communicator_.barrier().wait();
  if (!is_first()) return exit_fine;
  print_summary(setting_, rows_, ceiling_after);
  if (!options_.json.empty()) write_json(options_.json, setting_, rows_);
  if (!options_.csv.empty()) write_csv(options_.csv, setting_, rows_);
  if (!options_.constants.empty())
    write_report(options_.constants, format_constants(communicator_.constants()));
  return verdict();
}

int run_rank(BenchOptions& options, const PlaceInfo& place) {
  if (options.ranks && *options.ranks != place.size)
    throw UsageError(fmt::format("--ranks {}: {} has started {}; leave --ranks out", *options.ranks,
                                 place.source, place.size));
  settle(options, place.size);
  if (place.size == 1)
    fmt::print(stderr,
               "rondo bench: {} says that there is 1 rank: nothing will cross a link. Start more (mpirun -n "
               "4, srun -n 4, "
               "rondo run -n 4), or none: then rondo bench starts its own\n",
               place.source);
  try {
    return Bench(options, Communicator::connect(options.connect)).run();
  } catch (const UsageError& error) {
    if (place.rank == 0) fmt::print(stderr, "rondo bench: {}\n", error.what());
    return exit_usage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rondo bench: rank {}: {}\n", place.rank, error.what());
    return exit_failed;
  }
}

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
  }
  if (words.empty()) throw std::runtime_error("/proc/self/cmdline cannot be read; is /proc mounted?");
  words.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

int start_ranks(BenchOptions& options) {
  const int ranks = options.ranks.value_or(default_ranks);
  settle(options, ranks);
  try_file("--json", options.json);
  try_file("--csv", options.csv);
  try_file("--write-constants", options.constants);
  const SystemInfo info = gather_info(options.connect);
  const double needed = 2.0 * static_cast<double>(options.sizes.back()) * ranks;
  if (info.memory_bytes > 0 && needed > static_cast<double>(info.memory_bytes))
    throw UsageError(fmt::format("--maxbytes {}: {} ranks need {} for their buffers, this machine has {}",
                                 format_bytes(options.sizes.back()), ranks,
                                 format_bytes(static_cast<std::uint64_t>(needed)),
                                 format_bytes(info.memory_bytes)));
  SpawnOptions spawn;
  spawn.ranks = ranks;
  spawn.command = own_command_line();
  spawn.name = "rondo bench";
  spawn.explained = true;
  return spawn_ranks(spawn);
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("bench", "Measure an operation: time, bandwidth, and whether every result is right");
  auto flags = std::make_shared<BenchFlags>();
  add_bench_flags(*command, *flags);
  command->footer(
      "Without a launcher it starts its ranks on this host; under mpirun, srun, torchrun or rondo run it "
      "joins them. The flags\n"
      "are those of nccl-tests. Exit status: 0 fine, 1 wrong elements or a row below --min-bandwidth, 2 bad "
      "input,\n"
      "3 the ranks failed.\n"
      "\n"
      "%ceil is busbw in percent of what plain TCP sockets reach in the same run. Where all ranks share "
      "memory it "
      "is what they load and\n"
      "store in one operation, over p50, in percent of what they load and store (2 bytes for each byte "
      "copied) "
      "when all call memcpy on\n"
      "large memory at once; caches make it more than 100. S: size, n: ranks, +: out of place only\n"
      "                             --allocate           ordinary buffers\n"
      "  all_reduce                 2nS                  (5n-2)S\n"
      "  reduce                     (n+1)S               (3n-1)S + 2(n-1)/n S\n"
      "  reduce_scatter, _v         (n+1)S               (3n-1)S\n"
      "  broadcast, all_gather, _v  2(n-1)S (+2S)        2nS (+2S)\n"
      "  gather, scatter            2(n-1)/n S (+2S/n)   4(n-1)/n S (+2S/n)\n"
      "  all_to_all                 2nS (in place: ->)   4(n-1)S (+2S)\n");
  command->callback([flags, &exit_code] {
    BenchOptions options = interpret(*flags);
    const auto place = find_launch(options.connect);
    exit_code = place ? run_rank(options, *place) : start_ranks(options);
  });
}

}  // namespace rondo::tools

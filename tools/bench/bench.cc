// SPDX-License-Identifier: Apache-2.0
#include <rondo/info.h>
#include <rondo/version.h>

#include <fmt/format.h>

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tools/bench/options.h"
#include "tools/bench/report.h"
#include "tools/ceilings/ceiling.h"
#include "tools/ceilings/copy_ceiling.h"
#include "tools/ceilings/core_ceiling.h"
#include "tools/ceilings/device_ceiling.h"
#include "tools/ceilings/gpu_ceiling.h"
#include "tools/commands.h"
#include "tools/measure/agree.h"
#include "tools/measure/gpu.h"
#include "tools/measure/measure.h"
#include "tools/output.h"
#include "tools/ranks/bind.h"
#include "tools/ranks/launch.h"
#include "tools/ranks/spawn.h"
#include "tools/records/result_file.h"
#include "tools/records/results.h"
#include "tools/text.h"

namespace rondo::tools {
namespace {

constexpr int default_ranks = 4, one_way_ranks = 2;
constexpr int most_peers_shown = 4;

// One connected rank of the benchmark. The main thread calls run() once. A lost rank ends it with
// an exception. When rank 0 cannot write results, all ranks stop first, and then rank 0 throws.
class Bench {
 public:
  Bench(const BenchOptions& options, Communicator communicator)
      : options_(options),
        communicator_(std::move(communicator)),
        progress_(communicator_.rank() == 0) {
    setting_.table = options.shows_table();
    setting_.operation = options.operation;
    setting_.ranks = communicator_.size();
    setting_.reduces = options.reduces();
    setting_.checked = options.check;
    setting_.in_a_row = options.in_a_row;
    setting_.fresh = options.writes_anew();
    setting_.allocated = options.allocate;
    setting_.direct = options.connect.algorithm == "direct";
  }
  int run();

 private:
  bool is_first() const { return communicator_.rank() == 0; }
  void open_files();
  void open_gpu();
  template <class Function>
  void deliver(Function function);
  bool delivered();
  void find_transports();
  void find_binding();
  void describe();
  void describe_gpu() const;
  void describe_peers();
  bool measure_all(Measurement& measurement);
  bool measure_size(Measurement& measurement, std::uint64_t bytes);
  double measure_ceiling(const Row& row);
  void choose_ceiling(Measurement& measurement);
  void measure();
  int verdict() const;

  const BenchOptions& options_;
  Communicator communicator_;
  std::optional<BenchGpu> gpu_;  // no value: the buffers are in host memory
  Setting setting_;
  Progress progress_;
  std::string now_;  // what is being measured, for the progress line
  std::vector<Row> rows_;
  std::unique_ptr<Ceiling> ceiling_;
  bool trouble_told_ = false;
  std::optional<Results> results_;  // of rank 0
  std::exception_ptr lost_;         // why rank 0 can deliver no more
};

// Rank 0 tries its files before the first measurement. When it cannot write one, all ranks throw.
void Bench::open_files() {
  std::string trouble;
  try {
    if (is_first()) results_.emplace(options_.json, options_.csv);
    if (is_first() && !options_.constants.empty())
      const ResultFile tried("--write-constants", options_.constants);
  } catch (const UsageError& error) {
    trouble = error.what();
  }
  if (maximum_over_ranks(communicator_, trouble.empty() ? 0 : 1) == 0) return;
  throw UsageError(is_first() ? trouble : "rank 0 cannot write its files");
}

void Bench::open_gpu() {
  if (!options_.device.on_gpus) return;
  gpu_ = tools::open_gpu(communicator_, options_.device, options_.buffer_bytes(), options_.ceiling);
  setting_.gpu = &*gpu_;
}

// Calls a function that prints or writes, on rank 0 only. After the first that fails it calls none.
template <class Function>
void Bench::deliver(Function function) {
  if (!is_first() || lost_) return;
  try {
    function();
  } catch (const std::exception&) {
    lost_ = std::current_exception();
  }
}

// Whether rank 0 could write all results so far. All ranks get the same answer and stop together.
bool Bench::delivered() {
  return maximum_over_ranks(communicator_, lost_ ? 1 : 0) == 0;
}

// Sets the transports that at least one rank uses to reach another.
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
}

// Sets what the affinity mask of this rank means. A machine that hwloc cannot read has no cores to
// be bound to.
void Bench::find_binding() {
  setting_.processors = base::affinity_mask();
  try {
    setting_.bound = classify(load_topology(), setting_.processors);
  } catch (const std::system_error&) {
    setting_.bound = Bound::none;
  }
}

// Prints how rank 0 reaches the first peers to which it has several paths. Most peers are reached
// in the same way, so a few lines are enough.
void Bench::describe_peers() {
  int shown = 0;
  for (int peer = 1; peer < communicator_.size() && shown < most_peers_shown; ++peer) {
    const std::string how = communicator_.describe_peer(peer);
    if (how.find(" paths") == std::string::npos) continue;
    print("# rank 0 to rank {}: {}\n", peer, how);
    ++shown;
  }
}

// Gathers the names of the hosts, and prints the first and last rank of each.
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
  if (!setting_.table) return;
  deliver([&] {
    print("# rondo {}: {} over {}, {} {}{}{}{}\n", version(), name_of(options_.operation),
          setting_.transport, setting_.ranks, setting_.ranks == 1 ? "rank" : "ranks",
          describe_calls(setting_),
          options_.operation == Collective::barrier ? ""
          : setting_.fresh                          ? ", inputs written anew"
                                                    : ", inputs used again",
          setting_.allocated ? ", buffers from Communicator::allocate" : "");
    for (std::size_t first = 0, end; first < hosts.size(); first = end) {
      for (end = first + 1; end < hosts.size() && hosts[end] == hosts[first];) ++end;
      hosts[first].back() = 0;
      print("# ranks {} to {} on {}\n", first, end - 1, hosts[first].data());
    }
    print("# rank 0 is {}\n", tools::describe(setting_.bound, setting_.processors));
    describe_gpu();
    describe_peers();
  });
}

// Prints which GPU rank 0 uses, and what bounds operations that are staged.
void Bench::describe_gpu() const {
  if (!gpu_) return;
  print("# rank 0 uses GPU {}: {}, {}; staged through {}\n", gpu_->info.device, gpu_->info.name,
        base::describe_bytes(gpu_->info.memory_bytes), gpu_staging(setting_));
  if (gpu_->to_host > 0)
    print(
        "# copies between GPU {} and pinned memory reach {:.1f} GB/s to the GPU, {:.1f} GB/s to "
        "the host\n",
        gpu_->info.device, gpu_->to_gpu, gpu_->to_host);
}

// Measures the ceiling of such a row now. When it cannot, it returns 0 and reports the cause once.
double Bench::measure_ceiling(const Row& row) {
  progress_.show(fmt::format("{}: the ceiling ({})", now_, name_of(setting_.ceiling_of)));
  const double rate = ceiling_->measure(row);
  if (rate <= 0 && !std::exchange(trouble_told_, true) && !ceiling_->trouble().empty())
    say("rondo bench: rank {}: the ceiling was not measured: {}\n", communicator_.rank(),
        ceiling_->trouble());
  return rate;
}

bool Bench::measure_size(Measurement& measurement, std::uint64_t bytes) {
  now_ = base::describe_bytes(bytes);
  const Row described = measurement.describe(bytes, false);
  const bool held = ceiling_ && described.bytes > 0;
  const double before = held ? measure_ceiling(described) : 0;
  Row out_of_place = measurement.measure(bytes, false);
  std::optional<Row> in_place;
  if (options_.operation.has_in_place()) in_place = measurement.measure(bytes, true);
  if (held) {
    const double after = measure_ceiling(described);
    // When one of the two failed there is no ceiling.
    out_of_place.ceiling = before > 0 && after > 0 ? std::max(before, after) : 0;
  }
  rows_.push_back(out_of_place);
  if (in_place) {
    in_place->ceiling = out_of_place.ceiling;
    rows_.push_back(*in_place);
  }
  progress_.erase();
  deliver([&] {
    results_->add(setting_, out_of_place);
    if (in_place) results_->add(setting_, *in_place);
    results_->store();
    if (setting_.table) print_rows(setting_, out_of_place, in_place);
  });
  return delivered();
}

bool Bench::measure_all(Measurement& measurement) {
  for (const DType type : options_.types)
    for (const ReduceOp op : options_.ops) {
      if (!supports(type, op)) continue;
      for (const int root : options_.roots) {
        measurement.choose(type, op, root);
        for (const std::uint64_t bytes : options_.sizes)
          if (!measure_size(measurement, bytes)) return false;
      }
    }
  return true;
}

int Bench::verdict() const {
  int status = exit_fine;
  for (const Row& row : rows_) {
    if (row.wrong > 0) {
      say("rondo bench: {}: {} wrong elements\n", describe_row(setting_, row), row.wrong);
      status = exit_missed;
    }
    // A row without bytes has no bandwidth.
    if (options_.min_bandwidth && row.bytes > 0 && row.busbw < *options_.min_bandwidth) {
      say("rondo bench: {}: {:.4g} GB/s bus bandwidth, below --min-bandwidth {:.4g}\n",
          describe_row(setting_, row), row.busbw, *options_.min_bandwidth);
      status = exit_missed;
    }
  }
  return status;
}

// All ranks choose the same.
void Bench::choose_ceiling(Measurement& measurement) {
  if (gpu_) {
    ceiling_ = std::make_unique<GpuCeiling>(
        communicator_, gpu_->measures ? gpu_->stream.get() : nullptr, gpu_->copy_bytes());
    setting_.ceiling_of = CeilingOf::gpu;
    return;
  }
  // Where some ranks share memory, writes around the ring of all ranks would load other links.
  if (setting_.transport == "rdma") {
    auto device =
        std::make_unique<DeviceCeiling>(communicator_, options_.connect, options_.operation);
    if (device->usable()) {
      ceiling_ = std::move(device);
      setting_.ceiling_of = CeilingOf::device;
      return;
    }
    say("rondo bench: rank {}: cannot measure the ceiling of the devices, so plain sockets are the "
        "ceiling: {}\n",
        communicator_.rank(), device->trouble());
  }
  if (setting_.transport != "shm") {
    ceiling_ = std::make_unique<SocketCeiling>(communicator_, options_.connect, options_.operation);
    setting_.ceiling_of = CeilingOf::sockets;
    return;
  }
  // Memory from allocate is read where it is, and calls in a row overlap.
  if (options_.operation == Collective::all_reduce && !options_.allocate &&
      options_.in_a_row == 1) {
    auto cores = std::make_unique<CoreCeiling>(communicator_, measurement.in(), measurement.out(),
                                               options_.writes_anew());
    if (cores->usable()) {
      ceiling_ = std::move(cores);
      setting_.ceiling_of = CeilingOf::cores;
      return;
    }
    if (!cores->trouble().empty())
      say("rondo bench: rank {}: cannot measure the ceiling between the cores, so memcpy is the "
          "ceiling: {}\n",
          communicator_.rank(), cores->trouble());
  }
  ceiling_ = std::make_unique<CopyCeiling>(communicator_, measurement.in(), measurement.out());
  setting_.ceiling_of = CeilingOf::memcpy;
}

void Bench::measure() {
  Measurement measurement(
      communicator_, options_,
      [this](std::uint64_t iteration, std::uint64_t of) {
        if (progress_.active())
          progress_.show(fmt::format("{}: iteration {} of {}", now_, iteration + 1, of));
      },
      gpu_ ? gpu_->stream.get() : nullptr);
  if (options_.ceiling && communicator_.size() > 1) choose_ceiling(measurement);
  deliver([&] {
    if (setting_.table) print_header(setting_);
  });
  if (!delivered() || !measure_all(measurement)) return;
  communicator_.barrier().wait();
  deliver([&] {
    if (setting_.table) print_summary(setting_, rows_);
    results_->finish();
    if (!options_.constants.empty())
      write_report("--write-constants", options_.constants,
                   format_constants(communicator_.constants()));
  });
}

int Bench::run() {
  open_files();
  open_gpu();
  find_transports();
  if (is_first()) find_binding();
  deliver([&] { results_->begin(setting_); });
  try {
    describe();
    measure();
  } catch (const std::exception& error) {
    if (results_) results_->fail(error.what());
    throw;
  }
  if (!is_first()) return exit_fine;
  if (!lost_) return verdict();
  try {
    std::rethrow_exception(lost_);
  } catch (const std::exception& error) {
    results_->fail(error.what());
    throw;
  }
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
  settle(options, place.size);
  if (place.size == 1)
    say("rondo bench: {}: nothing will cross a link, so there is no bus bandwidth. {}\n",
        options.ranks ? "--ranks 1" : place.source + " says that there is 1 rank",
        options.ranks
            ? "Measure with --ranks 2 or more"
            : "Start more (mpirun -n 4, srun -n 4, rondo run -n 4), or use no launcher: then "
              "rondo bench starts its own ranks");
  try {
    return Bench(options, Communicator::connect(options.connect)).run();
  } catch (const OutputLost&) {
    throw;
  } catch (const UsageError& error) {
    if (place.rank == 0) say("rondo bench: {}\n", error.what());
    return exit_usage;
  } catch (const std::exception& error) {
    say("rondo bench: rank {}: {}\n", place.rank, error.what());
    return exit_failed;
  }
}

int start_ranks(BenchOptions& options, const std::vector<std::string>& command) {
  const int ranks = options.ranks.value_or(options.one_way() ? one_way_ranks : default_ranks);
  settle(options, ranks);
  const Results tried(options.json, options.csv);
  if (!options.constants.empty())
    const ResultFile constants("--write-constants", options.constants);
  Options ranks_options = options.connect;
  if (ranks_options.interfaces.empty())
    ranks_options.interfaces = {"lo"};  // as spawn_ranks() sets it
  const SystemInfo info = gather_info(ranks_options);
  if (!info.interface_error.empty()) throw UsageError(info.interface_error);
  if (options.device.on_gpus) choose_gpus(options.device, {ranks, options.buffer_bytes()});
  const double needed = 2.0 * static_cast<double>(options.sizes.back()) *
                        static_cast<double>(options.in_a_row) * ranks;
  if (info.memory_bytes > 0 && needed > static_cast<double>(info.memory_bytes))
    throw UsageError(fmt::format(
        "--maxbytes {}{}: {} ranks need {} for their buffers, this machine has {}",
        base::describe_bytes(options.sizes.back()),
        options.in_a_row > 1 ? fmt::format(", {} {}", options.in_a_row_flag(), options.in_a_row)
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

}  // namespace

void add_bench(CLI::App& app, std::vector<std::string> own, int& exit_code) {
  auto* command = app.add_subcommand(
      "bench", "Measure an operation: time, bandwidth, and whether every result is right");
  auto flags = std::make_shared<BenchFlags>();
  add_bench_flags(*command, *flags);
  command->footer(
      "Without a launcher it starts its ranks on this host. Under mpirun, srun, torchrun or\n"
      "rondo run it joins the ranks that these started. The flags are those of nccl-tests.\n"
      "Exit status: 0 fine, 1 wrong elements or a row below --min-bandwidth, 2 bad input,\n"
      "3 the ranks failed or the output could not be written, 141 the reader of the output\n"
      "closed it.\n"
      "\n"
      "%ceil is in percent of a ceiling. The table names it below %ceil, the files in ceiling_of:\n"
      "  sockets  busbw of plain TCP sockets over the same links at once\n"
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
      "  all_reduce, sendrecv                      2nS (--one-way: 2S for each message)\n"
      "  reduce, reduce_scatter, reduce_scatter_v  (n+1)S\n"
      "  broadcast, all_gather, all_gather_v       2(n-1)S (+2S)\n"
      "  all_to_all                                2(n-1)S (+2S)\n"
      "  gather, scatter                           2(n-1)/n S (+2S/n)\n");
  command->callback([flags, own = std::move(own), &exit_code] {
    BenchOptions options = interpret(*flags);
    const auto place = find_launch(options.connect);
    exit_code = place ? run_rank(options, *place) : start_ranks(options, own);
  });
}

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
//
// The table of the flags, and the parsers of their values. What several flags say together is read
// in options.cc.
#include "tools/bench/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>

#include "tools/ranks/spawn.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

using Name = const std::string&;
using Text = const std::string&;

// "3:5ms"
Delay read_delay(const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() != 2)
    throw UsageError(fmt::format("--delay {}: give a rank and a time, as in 3:5ms", text));
  const double seconds = parse_seconds("--delay", parts[1]);
  if (seconds > 60) throw UsageError(fmt::format("--delay {}: give at most 60s", text));
  return {parse_int("--delay", parts[0], 0, most_ranks - 1),
          std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9))};
}

// Only the folder can be checked before the ranks start.
std::string read_metrics(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code unknown;
  if (!folder.empty() && !std::filesystem::is_directory(folder, unknown))
    throw UsageError(fmt::format("--metrics {}: there is no folder {}; make it, or name another",
                                 path, folder.string()));
  return path;
}

std::chrono::nanoseconds read_pair_time(const std::string& text) {
  constexpr double least = 1e-3, most = 10;
  const double seconds = parse_seconds("--pair-time", text);
  if (seconds < least || seconds > most)
    throw UsageError(fmt::format("--pair-time {}: give 1ms to 10s", text));
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

double read_spread(const std::string& text) {
  const double spread = parse_positive("--max-spread", text);
  if (spread < 100) return spread;
  throw UsageError(fmt::format(
      "--max-spread {}: no link can be 100 percent below the median; give less than 100", text));
}

double read_latency(const std::string& text) {
  const double latency = parse_seconds("--max-latency", text);
  if (latency > 0) return latency;
  throw UsageError(fmt::format("--max-latency {}: give a time above 0, as in 50us", text));
}

int read_root(const std::string& text) {
  return text == "all" ? -1 : parse_int("--root", text, 0, std::numeric_limits<int>::max());
}

// Most numbers and texts go into one member of the options or of their conditions.
template <auto Member, std::uint64_t first, std::uint64_t last>
void set_number(Name name, Text text, BenchOptions& options) {
  options.conditions.*Member = parse_number(name, text, first, last);
}
template <auto Member>
void set_text(Name, Text text, BenchOptions& options) {
  options.*Member = text;
}
template <auto Member>
void set_on(Name, Text, BenchOptions& options) {
  options.*Member = true;
}

constexpr const char *one_size = "pairs has one size, the largest of --sizes",
                     *own_time = "pairs measures for --pair-time",
                     *host_only = "pairs sends host memory only",
                     *unchecked = "pairs sends bytes and checks none",
                     *no_intervals = "pairs has no intervals";

constexpr Flag flags_of_bench[] = {
    {"operation", "", Suits::all,
     "all_reduce (default), reduce, broadcast, all_gather, reduce_scatter, barrier, gather, "
     "scatter, all_to_all, all_gather_v, reduce_scatter_v, sendrecv (each rank sends to the next "
     "one and receives from the previous one); messages between two ranks: latency, bandwidth, "
     "bibandwidth (in both directions at once); between many pairs of ranks: rate; several with "
     "commas; pairs (every link between hosts)"},
    {"--one-way", nullptr, Suits::rows,
     "With sendrecv: between two ranks, a stream of messages from rank 0 to rank 1, and the "
     "latency of one: half of its round trip; also with --device cuda",
     nullptr, "pairs measures both directions, each alone"},
    {"--window", "COUNT", Suits::all,
     "With --one-way, bandwidth, bibandwidth and rate: messages of an iteration, which are all "
     "under way at once, 1 to 65536 (default 64); with pairs: messages under way (default 4)",
     set_number<&Conditions::window, 1, most_window>},
    {"--sizes", "LIST", Suits::all, "These sizes, instead of a range: 8,64K,1M"},
    {"-b,--minbytes", "SIZE", Suits::rows,
     "Smallest size; suffixes K, M, G and T are powers of 1024 (default 8; latency also has a row "
     "of 0 bytes)",
     nullptr, one_size},
    {"-e,--maxbytes", "SIZE", Suits::rows,
     "Largest size (default 64M; 4M for sendrecv --one-way, latency, bandwidth, bibandwidth and "
     "rate)",
     nullptr, one_size},
    {"-i,--stepbytes", "SIZE", Suits::rows,
     "Add this from one size to the next (default 1M where the factor is 1)", nullptr, one_size},
    {"-f,--stepfactor", "FACTOR", Suits::rows,
     "Multiply by this from one size to the next (default 4, and the largest size at the end)",
     nullptr, one_size},
    {"-n,--iters", "COUNT", Suits::rows,
     "Timed iterations (default: as many as fit into a second, at least 10, at most 200)",
     set_number<&Conditions::iterations, 1, 1'000'000'000>, own_time},
    {"-w,--warmup_iters", "COUNT", Suits::rows, "Untimed iterations before those (default 2)",
     set_number<&Conditions::warmups, 0, 1'000'000>, own_time},
    {"-m,--agg_iters", "COUNT", Suits::rows,
     "Calls of one iteration: all are started, then waited for; times are those of one call "
     "(default 1)",
     set_number<&Conditions::in_a_row, 1, 100'000>, "pairs has --window messages under way"},
    {"-c,--check", "NUMBER", Suits::rows,
     "Check every result of the timed iterations; 0 switches the check off (default 1)",
     [](Name name, Text text, BenchOptions& options) {
       options.conditions.check = parse_number(name, text, 0, 1'000'000'000) != 0;
     },
     unchecked},
    {"-d,--datatype", "TYPES", Suits::rows,
     "f64, f32 (default), f16, bf16, f8e4m3, f8e5m2, i64, u64, i32, u32, i8, u8, u16, i16, several "
     "with commas, or all",
     nullptr, unchecked, "f32"},
    {"-o,--op", "OPS", Suits::rows,
     "sum (default), mean, product, min, max, bit_and, bit_or, bit_xor, several with commas, or "
     "all; pairs of a type and an op that do not exist are left out",
     nullptr, "pairs reduces nothing"},
    {"-r,--root", "RANK", Suits::rows,
     "Root of reduce, broadcast, gather and scatter, or all (default 0)",
     [](Name, Text text, BenchOptions& options) { options.roots = {read_root(text)}; },
     "pairs has no root"},
    {"--ranks", "COUNT", Suits::all,
     "Ranks to start on this host when no launcher has done it, 1 to 1024 (default 4, between two "
     "ranks 2)",
     [](Name name, Text text, BenchOptions& options) {
       options.ranks = parse_int(name, text, 1, most_ranks);
     }},
    {"--bind", "core|numa|none", Suits::all,
     "Binds each rank that it starts. core: to a core of its own; numa: to the cores of a NUMA "
     "node; none: not at all (default: core while there are enough, else numa)",
     [](Name, Text text, BenchOptions& options) { options.binding = parse_binding(text); }},
    {"--device", "cpu|cuda|cuda:0,1", Suits::rows,
     "Where the buffers are: cpu (default), cuda (all GPUs of a host) or cuda:0,1 (these GPUs). "
     "Rank r of a host uses GPU r modulo their number",
     [](Name, Text text, BenchOptions& options) {
       for (const Operation& operation : options.operations)
         options.device = DeviceChoice::parse(text, operation);
     },
     host_only, "cpu"},
    {"--transport", "NAMES", Suits::all,
     "Transports that may be used: shm, rdma, tcp (default: shm within a host; between hosts rdma "
     "where devices reach each other, else tcp)",
     [](Name, Text text, BenchOptions& options) { options.connect.transports = split(text, ','); }},
    {"--algorithm", "NAME", Suits::rows,
     "ring, tree, star, doubling, chain, pairwise, halving, two_shot, two_level or direct "
     "(default: the planner chooses)",
     [](Name, Text text, BenchOptions& options) { options.connect.algorithm = text; },
     "messages have no algorithm to choose"},
    {"--interfaces", "FILTERS", Suits::all,
     "Interfaces to use: eth0,10.0.0.0/8; ^docker0,lo: all but these; eth*,^eth3: all eth but eth3",
     [](Name, Text text, BenchOptions& options) { options.connect.interfaces = {text}; }},
    {"-J,--json,--output_file", "FILE", Suits::all,
     "Write the results to this file as JSON, after each size; - is the standard output, without "
     "the table",
     set_text<&BenchOptions::json>},
    {"--csv", "FILE", Suits::all, "Write the results to this file as CSV, in the same way",
     set_text<&BenchOptions::csv>},
    {"--write-constants", "FILE", Suits::rows,
     "Measure the costs of the links, and write the planner's constants to this file, for "
     "RONDO_CONSTANTS; - is the standard output",
     set_text<&BenchOptions::constants>, "pairs measures no planner's constants"},
    {"--min-bandwidth", "RATE", Suits::all,
     "GB/s of bus bandwidth that every row with data must reach, otherwise the exit status is 1; "
     "not for barrier and latency",
     [](Name name, Text text, BenchOptions& options) {
       options.min_bandwidth = parse_positive(name, text);
     }},
    {"--max-latency", "TIME", Suits::all,
     "A time, as in 50us or 1.5ms, that the p50 of no row may exceed, otherwise the exit status is "
     "1. It is the p50 of a call, for latency and sendrecv --one-way of half a round trip; not for "
     "bandwidth, bibandwidth and rate, whose times are shares of a window; with pairs of no link",
     [](Name, Text text, BenchOptions& options) { options.max_latency = read_latency(text); }},
    {"--ranks-too", nullptr, Suits::pairs,
     "With pairs: every pair of ranks, also within a host, instead of one rank for each host",
     [](Name, Text, BenchOptions& options) { options.pairs->ranks_too = true; }},
    {"--pair-time", "TIME", Suits::pairs,
     "With pairs: the time of each measurement of a pair: bandwidth to and fro, and latency "
     "(default 100ms)",
     [](Name, Text text, BenchOptions& options) { options.pairs->time = read_pair_time(text); }},
    {"--svg", "FILE", Suits::pairs, "With pairs: write a heat map of both to this file as SVG",
     [](Name, Text text, BenchOptions& options) { options.pairs->svg = text; }},
    {"--max-spread", "PERCENT", Suits::pairs,
     "With pairs: percent of the median bandwidth that the worst link may lie below it, otherwise "
     "the exit status is 1",
     [](Name, Text text, BenchOptions& options) { options.pairs->max_spread = read_spread(text); }},
    {"--fail-outliers", nullptr, Suits::pairs,
     "With pairs: the exit status is 1 when a host or link was named",
     [](Name, Text, BenchOptions& options) { options.pairs->fail_outliers = true; }},
    {"--seconds", "TIME", Suits::rows,
     "Soak: measure for so long, a line for each interval, and sum up at the end or when a signal "
     "comes: 3600, 90s, 10m, 1h. Several rows take turns; no ceilings",
     [](Name name, Text text, BenchOptions& options) {
       options.seconds = parse_duration(name, text);
     },
     own_time},
    {"--interval", "TIME", Suits::soak, "With --seconds: the length of an interval (default 1s)",
     [](Name name, Text text, BenchOptions& options) {
       options.interval = parse_duration(name, text);
       if (options.interval < 0.01)
         throw UsageError(fmt::format("{} {}: give at least 10ms", name, text));
     },
     no_intervals},
    {"--jsonl", "FILE", Suits::soak,
     "With --seconds: write each interval to this file as a line of JSON at once; - is the "
     "standard output, without the table",
     set_text<&BenchOptions::jsonl>, no_intervals},
    {"--metrics", "FILE", Suits::all,
     "Write counters for Prometheus to this file, as RONDO_METRICS does: FOLDER/rondo.prom; each "
     "rank has its own (rondo.0.prom)",
     [](Name, Text text, BenchOptions& options) { options.connect.metrics = read_metrics(text); }},
    {"--delay", "RANK:TIME", Suits::rows,
     "As in 3:5ms: this rank sleeps so long before every call; for tests of what names late ranks",
     [](Name, Text text, BenchOptions& options) { options.delay = read_delay(text); },
     "pairs has no calls to delay"},
    {"--stragglers", nullptr, Suits::rows,
     "At the end, list the ranks in the order in which they were late",
     set_on<&BenchOptions::stragglers>, "pairs names hosts and links instead"},
    {"--wide", nullptr, Suits::rows,
     "One line for each size, with out-of-place and in-place side by side as nccl-tests prints "
     "them, and more columns",
     set_on<&BenchOptions::wide>, "pairs prints matrices"},
    {"--quiet", nullptr, Suits::all,
     "Print no table and no progress, only what is wrong, on the standard error",
     set_on<&BenchOptions::quiet>},
    {"-T,--deadline,--timeout", "SECONDS", Suits::all, "Seconds for one operation (default 300)",
     [](Name name, Text text, BenchOptions& options) {
       options.connect.deadline =
           std::chrono::milliseconds(1000 * parse_number(name, text, 1, 1'000'000));
     }},
    {"--no-ceiling", nullptr, Suits::all,
     "Do not measure ceilings (plain sockets; writes of RDMA devices; where all ranks share memory "
     "a bare all-reduce, or memcpy; with --device cuda copies)",
     [](Name, Text, BenchOptions& options) { options.ceiling = false; }},
    {"--allocate", nullptr, Suits::rows,
     "Take the buffers from Communicator::allocate: ranks that share memory work on them in one "
     "pass",
     [](Name, Text, BenchOptions& options) { options.conditions.allocate = true; }, host_only},
    {"--fresh", nullptr, Suits::rows,
     "Write the inputs anew before every iteration, untimed, as a backward pass does with "
     "gradients; the check always does, so this is for -c 0",
     [](Name, Text, BenchOptions& options) { options.conditions.fresh = true; }, unchecked}};

// Flags of nccl-tests that have no effect here. They are accepted with the values that Rondo has
// anyway, so that command lines of nccl-tests can be pasted.
struct NcclFlag {
  const char* names;
  const char* accepted;  // with commas
  const char* why;       // why other values are refused, and what to do instead
};

constexpr std::array nccl_flags{
    NcclFlag{"-t,--nthreads", "1", "a rank is a process; --ranks or the launcher starts more"},
    NcclFlag{"-g,--ngpus", "1", "a rank has at most one GPU; --ranks or the launcher starts more"},
    NcclFlag{"-z,--blocking", "1", "an iteration waits for its calls (-z 1); -m starts several"},
    NcclFlag{"-a,--average", "3", "times are those of the slowest rank (-a 3); --json has others"},
    NcclFlag{"-N,--run_cycles", "1", "rows are measured once; --seconds 1h repeats them"},
    NcclFlag{"-p,--parallel_init", "0,1", "ranks always join at the same time"},
    NcclFlag{"-G,--cudagraph", "0", "a CUDA graph cannot contain calls of Rondo"},
    NcclFlag{"-C,--report_cputime", "0", "times end when the result is there"},
    NcclFlag{"-R,--local_register", "0", "--allocate takes buffers that ranks of a host share"},
    NcclFlag{"-S,--report_timestamps", "0", "--jsonl writes the time of each interval"},
    NcclFlag{"-M,--memory_report", "0", "rondo bench does not measure memory"},
    NcclFlag{"-y,--stream_null", "0", "every rank has a stream of its own"},
    NcclFlag{"-u,--unalign", "0", "buffers are aligned"},
    NcclFlag{"-I,--per_iter_timing", "0", "the table has percentiles over the iterations"},
    NcclFlag{"-K,--per_iter_skip", "0", "-w says how many iterations are left out"},
    NcclFlag{"-x,--cta_policy", "0", "it is a setting of NCCL's kernels"},
    NcclFlag{"-D,--device_implementation", "0", "--algorithm direct runs in kernels on GPUs"}};

void add_nccl_flags(CLI::App& command) {
  for (const NcclFlag& flag : nccl_flags) {
    const auto check = [flag](const std::string& value) {
      const auto accepted = split(flag.accepted, ',');
      if (std::ranges::find(accepted, value) != accepted.end()) return;
      throw UsageError(fmt::format("{} {}: {}; leave the flag out",
                                   std::string_view(flag.names).substr(0, 2), value, flag.why));
    };
    // Without a group it is not in the list of --help.
    command.add_option_function<std::string>(flag.names, check)->group("");
  }
}

}  // namespace

std::string Flag::name() const {
  for (const std::string& one : split(names, ','))
    if (one.starts_with("--")) return one;
  return names;
}

std::span<const Flag> bench_flags() {
  return flags_of_bench;
}

bool BenchFlags::has(const Flag& flag) const {
  if (flag.value == nullptr) return on(flag.name());
  const std::string& text = (*this)[flag.name()];
  return !text.empty() && text != flag.default_value;
}

void BenchFlags::add_to(CLI::App& command) {
  for (const Flag& flag : flags_of_bench) {
    if (flag.value == nullptr)
      command.add_flag(flag.names, switches_[flag.name()], flag.help);
    else
      command.add_option(flag.names, texts_[flag.name()], flag.help)->type_name(flag.value);
  }
  add_nccl_flags(command);
}

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
//
// The flags of rondo bench and their help.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/bench/options.h"
#include "tools/shared/text.h"

namespace rondo::tools {

namespace {

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

void add_bench_flags(CLI::App& command, BenchFlags& flags) {
  const auto add = [&](const char* names, std::string& value, const char* text) {
    command.add_option(names, value, text)->type_name("");
  };
  add("operation", flags.operation,
      "all_reduce (default), reduce, broadcast, all_gather, reduce_scatter, barrier, gather, "
      "scatter, all_to_all, all_gather_v, reduce_scatter_v, sendrecv (each rank sends to the next "
      "one and receives from the previous one); messages between two ranks: latency, bandwidth, "
      "bibandwidth (in both directions at once); between many pairs of ranks: rate; several with "
      "commas; pairs (every link between hosts)");
  command.add_flag("--one-way", flags.one_way,
                   "With sendrecv: between two ranks, a stream of messages from rank 0 to rank 1, "
                   "and the latency of one: half of its round trip; also with --device cuda");
  add("--window", flags.window,
      "With --one-way, bandwidth, bibandwidth and rate: messages of an iteration, which are all "
      "under way at once (default 64); with pairs: messages under way (default 4)");
  add("--sizes", flags.sizes, "These sizes, instead of a range: 8,64K,1M");
  add("-b,--minbytes", flags.min_bytes,
      "Smallest size; suffixes K, M, G and T are powers of 1024 (default 8; latency also has a row "
      "of 0 bytes)");
  add("-e,--maxbytes", flags.max_bytes,
      "Largest size (default 64M; 4M for sendrecv --one-way, latency, bandwidth, bibandwidth and "
      "rate)");
  add("-i,--stepbytes", flags.step_bytes,
      "Add this from one size to the next (default 1M where the factor is 1)");
  add("-f,--stepfactor", flags.step_factor,
      "Multiply by this from one size to the next (default 4, and the largest size at the end)");
  add("-n,--iters", flags.iterations,
      "Timed iterations (default: as many as fit into a second, at least 10, at most 200)");
  add("-w,--warmup_iters", flags.warmups, "Untimed iterations before those (default 2)");
  add("-m,--agg_iters", flags.in_a_row,
      "Calls of one iteration: all are started, then waited for; times are those of one call "
      "(default 1)");
  add("-c,--check", flags.check,
      "Check every result of the timed iterations; 0 switches the check off (default 1)");
  add("-d,--datatype", flags.type,
      "f64, f32 (default), f16, bf16, f8e4m3, f8e5m2, i64, u64, i32, u32, i8, u8, u16, i16, "
      "several with commas, or all");
  add("-o,--op", flags.op,
      "sum (default), mean, product, min, max, bit_and, bit_or, bit_xor, several with commas, or "
      "all");
  add("-r,--root", flags.root, "Root of reduce, broadcast, gather and scatter, or all (default 0)");
  add("--ranks", flags.ranks,
      "Ranks to start on this host when no launcher has done it (default 4, between two ranks 2)");
  add("--bind", flags.bind,
      "Binds each rank that it starts. core: to a core of its own; numa: to the cores of a NUMA "
      "node; none: not at all (default: core while there are enough, else numa)");
  add("--device", flags.device,
      "Where the buffers are: cpu (default), cuda (all GPUs of a host) or cuda:0,1 (these GPUs). "
      "Rank r of a host uses GPU r modulo their number");
  add("--transport", flags.transport,
      "Transports that may be used: shm, rdma, tcp (default: shm within a host; between hosts rdma "
      "where devices reach each other, else tcp)");
  add("--algorithm", flags.algorithm,
      "ring, tree, star, doubling, chain, pairwise, halving, two_shot, two_level or direct "
      "(default: the planner chooses)");
  add("--interfaces", flags.interfaces,
      "Interfaces to use: eth0,10.0.0.0/8; ^docker0,lo: all but these; eth*,^eth3: all eth but "
      "eth3");
  add("-J,--json,--output_file", flags.json,
      "Write the results to this file as JSON, after each size; - is the standard output, without "
      "the table");
  add("--csv", flags.csv, "Write the results to this file as CSV, in the same way");
  add("--write-constants", flags.constants,
      "Measure the costs of the links, and write the planner's constants to this file, for "
      "RONDO_CONSTANTS; - is the standard output");
  add("--min-bandwidth", flags.min_bandwidth,
      "GB/s of bus bandwidth that every row with data must reach, otherwise the exit status is 1; "
      "not for barrier and latency");
  add("--max-latency", flags.max_latency,
      "A time, as in 50us or 1.5ms, that the p50 of no row may exceed, otherwise the exit status "
      "is 1. It is the p50 of a call, for latency and sendrecv --one-way of half a round trip; not "
      "for bandwidth, bibandwidth and rate, whose times are shares of a window; with pairs of no "
      "link");
  add_pairs_flags(command, flags.pairs);
  add("--seconds", flags.seconds,
      "Soak: measure for so long, a line for each interval, and sum up at the end or when a signal "
      "comes: 3600, 90s, 10m, 1h. Several rows take turns; no ceilings");
  add("--interval", flags.interval, "With --seconds: the length of an interval (default 1s)");
  add("--jsonl", flags.jsonl,
      "With --seconds: write each interval to this file as a line of JSON at once; - is the "
      "standard output, without the table");
  add("--metrics", flags.metrics,
      "Write counters for Prometheus to this file, as RONDO_METRICS does: FOLDER/rondo.prom; each "
      "rank has its own (rondo.0.prom)");
  add("--delay", flags.delay,
      "RANK:TIME, as in 3:5ms: this rank sleeps so long before every call; for tests of what names "
      "late ranks");
  command.add_flag("--stragglers", flags.stragglers,
                   "At the end, list the ranks in the order in which they were late");
  command.add_flag("--wide", flags.wide,
                   "One line for each size, with out-of-place and in-place side by side as "
                   "nccl-tests prints them, and more columns");
  command.add_flag("--quiet", flags.quiet,
                   "Print no table and no progress, only what is wrong, on the standard error");
  add("-T,--deadline,--timeout", flags.deadline, "Seconds for one operation (default 300)");
  command.add_flag(
      "--no-ceiling", flags.no_ceiling,
      "Do not measure ceilings (plain sockets; writes of RDMA devices; where all ranks "
      "share memory a bare all-reduce, or memcpy; with --device cuda copies)");
  command.add_flag(
      "--allocate", flags.allocate,
      "Take the buffers from Communicator::allocate: ranks that share memory work on them in one "
      "pass");
  command.add_flag("--fresh", flags.fresh,
                   "Write the inputs anew before every iteration, untimed, as a backward pass does "
                   "with gradients; the check always does, so this is for -c 0");
  add_nccl_flags(command);
}

}  // namespace rondo::tools

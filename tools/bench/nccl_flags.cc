// SPDX-License-Identifier: Apache-2.0
//
// Flags of nccl-tests that choose nothing here, so that its command lines can be pasted. Such a
// flag is accepted with the values that say what Rondo does, and refused with any other.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/bench/options.h"
#include "tools/text.h"

namespace rondo::tools {
namespace {

struct NcclFlag {
  const char* names;
  const char* accepted;  // with commas
  const char* why;       // not another value, and what to do instead
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

}  // namespace

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

}  // namespace rondo::tools

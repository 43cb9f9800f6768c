// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/options.h>
#include <rondo/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/commands.h"
#include "tools/measure/gpu.h"
#include "tools/measure/operation.h"
#include "tools/ranks/bind.h"

namespace rondo::tools {

// The flags as the user typed them. They are text, so that interpret() alone reads them and writes
// the messages.
struct BenchFlags {
  std::string operation = "all_reduce";
  std::string min_bytes, max_bytes, step_bytes, step_factor, iterations, warmups, in_a_row, check,
      type = "f32", op, root, window;
  std::string ranks, transport, algorithm, interfaces, json, csv, constants, min_bandwidth,
      deadline, bind, device;
  bool no_ceiling = false, allocate = false, fresh = false, one_way = false;
};
void add_bench_flags(CLI::App& command, BenchFlags& flags);

// The meaning of the flags.
struct BenchOptions {
  Operation operation = Collective::all_reduce;
  std::vector<std::uint64_t> sizes;  // bytes, ascending
  std::vector<DType> types;
  std::vector<ReduceOp> ops;     // one unused entry for operations that do not reduce
  std::vector<int> roots;        // one unused entry without a root; until settle() -1: all ranks
  std::uint64_t iterations = 0;  // 0: by time
  std::uint64_t warmups = 2;
  // Calls of one iteration, started before the first is waited for; in one direction the window.
  std::uint64_t in_a_row = 1;
  bool check = true;
  bool fresh = false;
  bool ceiling = true;
  bool allocate = false;                // buffers from Communicator::allocate
  DeviceChoice device;                  // where the buffers are
  std::optional<int> ranks;             // of --ranks
  std::optional<Binding> binding;       // of --bind
  std::string json, csv, constants;     // files; empty: none; - is the standard output
  std::optional<double> min_bandwidth;  // GB/s
  Options connect;

  bool reduces() const;
  bool rooted() const;
  bool one_way() const { return operation == Operation::one_way(); }
  // The flag that sets in_a_row.
  const char* in_a_row_flag() const { return one_way() ? "--window" : "--agg_iters"; }
  // Whether inputs are written before every iteration: with a check they always are.
  bool writes_anew() const { return check || fresh; }
  // False when the standard output is one of the files.
  bool shows_table() const;
  // Bytes of the buffers of a rank, at most.
  std::uint64_t buffer_bytes() const { return 2 * sizes.back() * in_a_row; }
};

// Reads all flags; settle() checks what depends on the number of ranks. Throws UsageError that says
// what was given and what is possible.
BenchOptions interpret(const BenchFlags& flags);
// Checks and completes the roots, once the number of ranks is known. Throws UsageError when a root
// is not one of the ranks, or the operation needs another number of them.
void settle(BenchOptions& options, int ranks);

}  // namespace rondo::tools

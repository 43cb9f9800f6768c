// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/options.h>
#include <rondo/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/measure/conditions.h"
#include "tools/measure/gpu.h"
#include "tools/measure/operation.h"
#include "tools/ranks/bind.h"

namespace rondo::tools {

// Every message of a window has memory of its own. OSU's benchmarks end here too.
inline constexpr std::uint64_t most_window = 65'536;

// The options that only `rondo bench pairs` has.
struct PairsOptions {
  bool ranks_too = false, fail_outliers = false;
  std::chrono::nanoseconds time = std::chrono::milliseconds(100);  // of one measurement
  std::string svg;                   // a file; empty: none; - is the standard output
  std::optional<double> max_spread;  // percent
};

// Makes one rank late on purpose.
struct Delay {
  int rank = 0;
  std::chrono::nanoseconds time{};
};

// The meaning of the flags (tools/bench/flags.h).
struct BenchOptions {
  std::vector<Operation> operations{Collective::all_reduce};
  std::vector<std::uint64_t> sizes;  // bytes, ascending
  bool sizes_from_zero = false;      // latency has a row without bytes before them
  std::vector<DType> types;
  std::vector<ReduceOp> ops;
  std::vector<int> roots{0};  // until settle() -1: all ranks
  Conditions conditions;      // the delay is that of this rank only after settle()
  std::optional<Delay> delay;
  std::optional<double> seconds;  // a soak of so long
  double interval = 1;            // of a soak, in seconds
  std::string jsonl;              // the file of its intervals; empty: none
  bool ceiling = true;
  DeviceChoice device;                  // where the buffers are
  std::optional<int> ranks;             // of --ranks
  std::optional<Binding> binding;       // of --bind
  std::string json, csv, constants;     // files; empty: none; - is the standard output
  std::optional<double> min_bandwidth;  // GB/s
  std::optional<double> max_latency;    // seconds
  std::optional<PairsOptions> pairs;    // the operation is pairs
  bool wide = false, quiet = false, stragglers = false;
  std::vector<std::string> command;  // as the user typed it
  Options connect;

  // The sizes and variants of one operation: a barrier has no sizes and types, and only some reduce
  // or have a root.
  std::vector<std::uint64_t> sizes_of(const Operation& operation) const;
  std::vector<Variant> variants_of(const Operation& operation) const;

  bool one_way() const { return operations.front() == Operation::one_way(); }
  // Whether an operation is between the two ranks of a pair.
  bool between_pairs() const;
  // Calls of an iteration, at most.
  std::uint64_t most_calls() const;
  // The flag that sets them.
  const char* calls_flag() const {
    return most_calls() != conditions.in_a_row ? "--window" : "--agg_iters";
  }
  // False when the standard output is one of the files.
  bool shows_table() const;
  // Bytes of the buffers of a rank, at most.
  std::uint64_t buffer_bytes() const { return 2 * conditions.largest * most_calls(); }
};

// Throws UsageError when a file of results cannot be written. Changes none.
void try_files(const BenchOptions& options);
// Checks and completes roots and delay, once the number of ranks is known. Throws UsageError when a
// root is not one of the ranks, or an operation needs another number of them. rank: this one; -1
// before it is known.
void settle(BenchOptions& options, int ranks, int rank = -1);

}  // namespace rondo::tools

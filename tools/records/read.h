// SPDX-License-Identifier: Apache-2.0
//
// Reads records (docs/reference/records.md) that `rondo bench` has written, on any machine. Nothing
// in them is trusted: sizes are bounded, and every member that is used has been checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/measure/row.h"
#include "tools/records/hosts.h"

namespace rondo::tools {

// A result of a benchmark, or an interval of a soak.
struct ResultRow {
  std::string operation, transport, type, op, algorithm;
  std::uint64_t bytes = 0;
  std::uint64_t calls = 1;  // of an iteration: agg_iters or window
  std::uint64_t iterations = 0;
  int ranks = 1, root = -1;
  bool in_place = false;
  Times time;
  std::optional<Times> latency;   // of sendrecv --one-way
  double algbw = 0, busbw = 0;    // GB/s
  double ceiling_percent = 0;     // 0: not known
  std::uint64_t wrong = 0;        // elements
  std::uint64_t errors = 0;       // of an interval
  std::optional<double> second;   // of an interval: when it began
  std::optional<double> late_us;  // of the rank that was last most often
  std::optional<int> late_rank;
};

// A result of `rondo bench pairs`: one direction between two hosts.
struct PairResult {
  int from_rank = 0, to_rank = 0;
  std::string from_host, to_host;
  std::optional<double> bandwidth;  // GB/s
  std::optional<double> latency_us;
  std::string outlier;  // "bandwidth", "latency" or both; empty: neither
};

// The summary of a soak for one operation and size.
struct SoakSummary {
  std::string operation, type, op;
  std::uint64_t bytes = 0, intervals = 0, iterations = 0, wrong = 0, errors = 0;
  bool in_place = false;
  Times time;  // without mean and p90
  std::optional<double> drift_percent_per_hour;
};

// Text of a record may hold any characters: use base::printable() for a terminal and
// markup_text() for a page.
struct Record {
  std::string path;  // as the user gave it
  std::string text;  // the whole file
  std::string kind;  // "bench", "pairs" or "soak"
  std::string rondo, time;
  std::vector<std::string> command;
  std::string transport, binding, processors, device_name, staging;
  int ranks = 1;
  bool checked = false, fresh = false, allocated = false;
  std::vector<HostRecord> hosts;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<ResultRow> rows;        // of "bench" and "soak"
  std::vector<PairResult> pairs;      // of "pairs"
  std::vector<std::string> findings;  // of "pairs": a sentence each
  std::vector<SoakSummary> summary;   // of "soak"
  bool complete = false;
  std::string error;  // why it is not complete
};

// Reads a host of a record alone, as json_of() has written it. Throws UsageError.
HostRecord parse_host(const std::string& text);

// "2026-11-27T14:03:03Z, rondo 0.1.0, 4 ranks over shm on one, two"
std::string describe(const Record& record);

// Bytes of a record that is read, at most.
inline constexpr std::size_t most_record_bytes = std::size_t{64} << 20;

// Both throw UsageError that names the file, what is wrong, and what to do.
Record read_record(const std::string& path);
// Likewise for the text of a file. path: for messages.
Record parse_record(const std::string& path, std::string text);

// Reads the files, and says on standard error which records are not complete. command: "rondo plot"
std::vector<Record> read_records(std::string_view command, const std::vector<std::string>& paths);

}  // namespace rondo::tools

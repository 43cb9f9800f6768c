// SPDX-License-Identifier: Apache-2.0
//
// Compares rows of records. docs/reference/records.md says what noise is and when a row is worse.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tools/records/read.h"

namespace rondo::tools {

enum class Metric : unsigned char { p50, p99, busbw };
std::string_view name_of(Metric metric) noexcept;

// "10%" -> 10. Throws UsageError.
double parse_worse(std::string_view text, Metric metric);

// Two rows are compared when this is equal.
struct RowKey {
  std::string operation, type, op;
  int root = -1;
  bool in_place = false;
  int ranks = 1;
  std::uint64_t bytes = 0;

  bool operator<(const RowKey& other) const {
    const auto members = [](const RowKey& key) {
      return std::tie(key.operation, key.type, key.op, key.root, key.in_place, key.ranks,
                      key.bytes);
    };
    return members(*this) < members(other);
  }
};

// "all_reduce 64 KiB f32 sum, in place"
std::string describe(const RowKey& key);

// The rows of one side with one key.
struct SideOfRow {
  double value = 0;           // of the metric: of the row, or the median of several rows
  double low = 0, high = 0;   // the interval of its noise
  std::vector<double> tried;  // the values, without the outer tenths where there are many
  std::uint64_t rows = 0, wrong = 0, errors = 0;
  std::string transport, algorithm;
  std::uint64_t calls = 1;
};

enum class Verdict : unsigned char { same, better, worse, failed, wrong, unknown };

// A row of the table. failed: worse by more than was allowed; wrong: the second side has wrong
// elements or errors; unknown: the metric of one side is 0.
struct ComparedRow {
  RowKey key;
  SideOfRow first, second;
  double ratio = 0;  // second over first
  Verdict verdict = Verdict::unknown;
};

struct Comparison {
  Metric metric = Metric::p50;
  std::vector<ComparedRow> rows;  // in the order of the first side's records
  std::vector<RowKey> only_first, only_second;
  std::uint64_t count(Verdict verdict) const;
};

// worse: percent that a row may be worse; no value: any. Throws UsageError when the sides have no
// row in common, or hold records that have no rows to compare.
Comparison compare(std::span<const Record> first, std::span<const Record> second, Metric metric,
                   std::optional<double> worse);

// How the settings and machines of the two sides differ, a line for each: "binding: core; none".
std::vector<std::string> differences(std::span<const Record> first, std::span<const Record> second);

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/pairs_options.h"

#include <fmt/format.h>

#include <cstdint>

#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr double default_time = 0.1, least_time = 1e-3, most_time = 10;  // seconds

}  // namespace

void add_pairs_flags(CLI::App& command, PairsFlags& flags) {
  const auto add = [&](const char* names, std::string& value, const char* text) {
    command.add_option(names, value, text)->type_name("");
  };
  command.add_flag("--ranks-too", flags.ranks_too,
                   "With pairs: every pair of ranks, also within a host, instead of one rank for "
                   "each host");
  add("--pair-time", flags.pair_time,
      "With pairs: the time of each measurement of a pair: bandwidth to and fro, and latency "
      "(default 100ms)");
  add("--svg", flags.svg, "With pairs: write a heat map of both to this file as SVG");
  add("--max-spread", flags.max_spread,
      "With pairs: percent of the median bandwidth that the worst link may lie below it, otherwise "
      "the exit status is 1");
  command.add_flag("--fail-outliers", flags.fail_outliers,
                   "With pairs: the exit status is 1 when a host or link was named");
}

PairsOptions interpret(const PairsFlags& flags) {
  PairsOptions options;
  options.ranks_too = flags.ranks_too;
  options.fail_outliers = flags.fail_outliers;
  options.svg = flags.svg;
  double seconds = default_time;
  if (!flags.pair_time.empty()) seconds = parse_seconds("--pair-time", flags.pair_time);
  if (seconds < least_time || seconds > most_time)
    throw UsageError(fmt::format("--pair-time {}: give 1ms to 10s", flags.pair_time));
  options.time = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  if (flags.max_spread.empty()) return options;
  options.max_spread = parse_positive("--max-spread", flags.max_spread);
  if (*options.max_spread >= 100)
    throw UsageError(fmt::format(
        "--max-spread {}: no link can be 100 percent below the median; give less than 100",
        flags.max_spread));
  return options;
}

void refuse(const PairsFlags& flags, const std::string& operation) {
  const auto check = [&](bool given, const char* flag) {
    if (given)
      throw UsageError(
          fmt::format("{}: only for rondo bench pairs, and the operation is {}; leave the flag out",
                      flag, operation));
  };
  check(flags.ranks_too, "--ranks-too");
  check(!flags.pair_time.empty(), "--pair-time");
  check(!flags.svg.empty(), "--svg");
  check(!flags.max_spread.empty(), "--max-spread");
  check(flags.fail_outliers, "--fail-outliers");
}

}  // namespace rondo::tools

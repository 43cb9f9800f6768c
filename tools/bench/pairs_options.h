// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "tools/shared/commands.h"

namespace rondo::tools {

// The flags that only `rondo bench pairs` has, as the user typed them.
struct PairsFlags {
  std::string pair_time, svg, max_spread;
  bool ranks_too = false, fail_outliers = false;
};
void add_pairs_flags(CLI::App& command, PairsFlags& flags);

// The meaning of the flags.
struct PairsOptions {
  bool ranks_too = false, fail_outliers = false;
  std::chrono::nanoseconds time{};   // of one measurement
  std::string svg;                   // a file; empty: none; - is the standard output
  std::optional<double> max_spread;  // percent
};

// Throws UsageError that says what was given and what is possible.
PairsOptions interpret(const PairsFlags& flags);
// Throws UsageError when one of the flags was given: the operation is another one.
void refuse(const PairsFlags& flags, const std::string& operation);

}  // namespace rondo::tools

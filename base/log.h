// SPDX-License-Identifier: Apache-2.0
//
// Writes lines to standard error, never to standard output. RONDO_LOG = off, error, warning (the
// default), info, debug; it is read once. Thread-safe. A line that cannot be written is lost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace rondo::base {

enum class LogLevel { off, error, warning, info, debug };

bool log_enabled(LogLevel level) noexcept;
// Writes "rondo warning: text" in one system call, so the lines of ranks that share a terminal do
// not mix.
void log_line(LogLevel level, std::string_view text) noexcept;

// Limits log lines that strangers can cause, so that they cannot fill a disk. The first ten are
// written, then at most one a minute, which tells how many were left out before it. Thread-bound.
class QuotaLog {
 public:
  void line(LogLevel level, const std::string& text);
  // Admits a line, and returns how many were left out since the last one that was written. Without
  // a value leave this line out too.
  std::optional<std::uint64_t> admit(TimePoint now);

 private:
  int first_lines_ = 0;
  std::uint64_t left_out_ = 0;
  TimePoint next_;
};

}  // namespace rondo::base

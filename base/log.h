// SPDX-License-Identifier: Apache-2.0
//
// Writes lines to standard error, never to standard output. RONDO_LOG = off, error, warning (the
// default), info, debug; it is read once. Thread-safe. A line that cannot be written is lost.
#pragma once

#include <string_view>

namespace rondo::base {

enum class LogLevel { off, error, warning, info, debug };

bool log_enabled(LogLevel level) noexcept;
// Writes "rondo warning: text" in one system call, so the lines of ranks that share a terminal do
// not mix.
void log_line(LogLevel level, std::string_view text) noexcept;

}  // namespace rondo::base

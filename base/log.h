// SPDX-License-Identifier: Apache-2.0
//
// Lines on standard error, never on standard output. RONDO_LOG = off, error, warning (the default),
// info, debug.
#pragma once

#include <string_view>

namespace rondo::base {

enum class LogLevel { off, error, warning, info, debug };

bool log_enabled(LogLevel level) noexcept;
// "rondo warning: text", one write for each line; ranks that share a terminal do not mix within a
// line.
void log_line(LogLevel level, std::string_view text) noexcept;

}  // namespace rondo::base

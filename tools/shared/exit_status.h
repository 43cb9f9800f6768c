// SPDX-License-Identifier: Apache-2.0
//
// The exit statuses of `rondo`.
#pragma once

#include <string_view>

namespace rondo::tools {

inline constexpr int exit_fine = 0, exit_missed = 1, exit_usage = 2, exit_failed = 3;
// As shells have them: a program that cannot be run, one that is not there, and a signal.
inline constexpr int exit_not_runnable = 126, exit_not_found = 127;
constexpr int exit_of_signal(int signal) noexcept {
  return 128 + signal;
}

// The only place that lists the statuses: --help prints it, and tests/tools/flags_test.py makes the
// lists of the pages from that.
inline constexpr std::string_view exit_statuses =
    "Exit status:\n"
    "  0        fine\n"
    "  1        wrong elements, or a result that --min-bandwidth, --max-latency, --max-spread,\n"
    "           --fail-outliers or, with compare, --worse does not allow; with plan --check,\n"
    "           a schedule that is wrong\n"
    "  2        bad input\n"
    "  3        the ranks failed, or the output could not be written\n"
    "  128 + n  signal n ended the run; what was measured is kept\n"
    "  141      the reader of the output has closed it\n";

}  // namespace rondo::tools

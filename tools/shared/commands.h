// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of `rondo`. Each registers its flags. The chosen one runs and sets exit_code.
// main() turns UsageError and OutputLost into a status.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace rondo::tools {

inline constexpr int exit_fine = 0, exit_missed = 1, exit_usage = 2, exit_failed = 3;
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

// `command` starts this program again with the same arguments: `rondo bench` makes its ranks this
// way.
void add_bench(CLI::App& app, std::vector<std::string> command, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_info(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_plot(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of `rondo`. Each registers its flags. The chosen one runs and sets exit_code: 0
// fine, 1 the result is not what was asked for (wrong elements, too little bandwidth), 2 bad input,
// 3 the ranks failed or the output was lost. main() turns UsageError into 2, and OutputLost into
// 141 when the reader of the output has closed it.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string>
#include <vector>

namespace rondo::tools {

inline constexpr int exit_fine = 0, exit_missed = 1, exit_usage = 2, exit_failed = 3;

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

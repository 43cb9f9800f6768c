// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of `rondo`. Each registers its flags. The chosen one runs and sets exit_code.
// main() turns UsageError and OutputLost into a status.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string>
#include <vector>

namespace rondo::tools {

// `command` starts this program again with the same arguments: `rondo bench` makes its ranks this
// way.
void add_bench(CLI::App& app, std::vector<std::string> command, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_info(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_plot(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_trace(CLI::App& app, int& exit_code);

}  // namespace rondo::tools

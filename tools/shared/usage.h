// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string>
#include <vector>

namespace rondo::tools {

// The arguments of the process without its name, in a form that CLI11 can read. It leaves out the
// "--" before the program of `rondo run`, because CLI11 allows programs with flags of their own
// only without it. Throws UsageError for flags of other launchers.
std::vector<std::string> normalize_arguments(int argc, char** argv);

// What CLI11 found wrong, in Rondo's words, and the possible names for an unknown flag or command.
// For CLI11's App::failure_message.
std::string explain(const CLI::App* app, const CLI::Error& error);

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string>
#include <vector>

namespace rondo::tools {

// The arguments of the process without its name, as CLI11 can read them: without the "--" that may stand before the program of
// `rondo run`, since it knows programs with flags of their own only when nothing separates them. Throws UsageError for flags that
// other launchers have.
std::vector<std::string> normalize_arguments(int argc, char** argv);

// What CLI11 found wrong, in our words, and for an unknown flag or command what there is instead. As CLI11 wants it for
// App::failure_message.
std::string explain(const CLI::App* app, const CLI::Error& error);

}  // namespace rondo::tools

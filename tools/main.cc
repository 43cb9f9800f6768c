// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <rondo/error.h>
#include <rondo/version.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tools/commands.h"
#include "tools/text.h"

namespace {

using rondo::tools::exit_failed;
using rondo::tools::exit_fine;
using rondo::tools::exit_usage;

// What CLI11 found wrong, and for an unknown flag or command what there is instead.
std::string explain(const CLI::App* app, const CLI::Error& error) {
  const auto chosen = app->get_subcommands();
  const CLI::App* place = chosen.empty() ? app : chosen.front();
  std::string text =
      fmt::format("{}: {}\n", place == app ? "rondo" : "rondo " + place->get_name(), error.what());
  std::vector<std::string> names;
  if (place == app) {
    for (const CLI::App* command : app->get_subcommands({})) names.push_back(command->get_name());
    return text +
           fmt::format("commands: {}; rondo COMMAND --help describes one\n", rondo::tools::join(names));
  }
  for (const CLI::Option* option : place->get_options())
    if (option->nonpositional()) names.push_back(option->get_name(false, true));
  return text + fmt::format("flags: {}\n", rondo::tools::join(names, " "));
}

int run(int argc, char** argv) {
  CLI::App app{
      "Rondo: collective communication over shared memory and TCP. Measures it, starts ranks, explains "
      "itself."};
  app.name("rondo");
  app.set_version_flag("--version", "rondo " + std::string(rondo::version()));
  app.failure_message(explain);
  app.require_subcommand(1);
  int exit_code = exit_fine;
  rondo::tools::add_bench(app, exit_code);
  rondo::tools::add_run(app, exit_code);
  rondo::tools::add_info(app, exit_code);
  rondo::tools::add_plan(app, exit_code);
  std::vector<std::string> arguments = rondo::tools::normalize_arguments(argc, argv);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_fine : exit_usage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 && argv[1][0] != '-' ? fmt::format("rondo {}", argv[1]) : "rondo";
  try {
    return run(argc, argv);
  } catch (const rondo::tools::UsageError& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return exit_usage;
  } catch (const rondo::Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return error.code() == rondo::Errc::invalid_argument ? exit_usage : exit_failed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return exit_failed;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <rondo/error.h>
#include <rondo/version.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tools/ranks/spawn.h"
#include "tools/shared/commands.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"
#include "tools/shared/usage.h"

namespace {

using namespace rondo::tools;

int run(int argc, char** argv) {
  CLI::App app{
      "Rondo: collective communication over shared memory and TCP. Measure operations, start "
      "ranks, explain schedules, compare and draw what was measured."};
  app.name("rondo");
  app.set_version_flag("--version", "rondo " + std::string(rondo::version()));
  app.failure_message(explain);
  app.require_subcommand(1);
  int exit_code = exit_fine;
  add_bench(app, own_command_line(argc, argv), exit_code);
  add_run(app, exit_code);
  add_info(app, exit_code);
  add_plan(app, exit_code);
  add_compare(app, exit_code);
  add_plot(app, exit_code);
  add_report(app, exit_code);
  std::vector<std::string> arguments = normalize_arguments(argc, argv);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    std::ostringstream help, mistake;
    const int code = app.exit(error, help, mistake);
    print_text(help.str());
    say_text(mistake.str());
    return code == 0 ? exit_fine : exit_usage;
  }
  return exit_code;
}

// A command has succeeded only when its result is written.
int run_and_flush(int argc, char** argv) {
  const int status = run(argc, argv);
  if (status == exit_fine) flush_output();
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  prepare_output();
  const std::string name =
      argc > 1 && argv[1][0] != '-' ? fmt::format("rondo {}", argv[1]) : "rondo";
  try {
    return run_and_flush(argc, argv);
  } catch (const OutputLost& lost) {
    if (!lost.reader_is_gone()) say("{}: {}\n", name, lost.what());
    return lost.exit_status();
  } catch (const UsageError& error) {
    say("{}: {}\n", name, error.what());
    return exit_usage;
  } catch (const rondo::Error& error) {
    say("{}: {}\n", name, error.what());
    return error.code() == rondo::Errc::invalid_argument ? exit_usage : exit_failed;
  } catch (const std::exception& error) {
    say("{}: {}\n", name, error.what());
    return exit_failed;
  }
}

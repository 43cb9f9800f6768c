// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <rondo/error.h>
#include <rondo/version.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/ranks/spawn.h"
#include "tools/shared/commands.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace {

using namespace rondo::tools;

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// Returns "-n,--iters" for each flag, or every name alone.
std::vector<std::string> flags_of(const CLI::App& command, bool each_alone) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->nonpositional() || option->get_group().empty()) continue;
    const std::string all = option->get_name(false, true);
    if (!each_alone)
      names.push_back(all);
    else
      for (const std::string& name : split(all, ',')) names.push_back(name);
  }
  return names;
}

std::string list(const CLI::App& app, const CLI::App& place) {
  if (&place == &app)
    return fmt::format("commands: {}; rondo COMMAND --help describes one\n",
                       join(commands_of(app)));
  return fmt::format("flags: {}\n", join(flags_of(place, false), " "));
}

std::string explain_rest(const CLI::App& app, const CLI::App& place) {
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty()) return "too many arguments";
  const std::string& word = words.front();
  if (&place == &app && !word.starts_with('-'))
    return fmt::format("unknown command '{}'{}", word, suggest(word, commands_of(app)));
  if (!word.starts_with('-')) return fmt::format("'{}' is one argument too many", word);
  const std::string flag = word.substr(0, word.find('='));
  return fmt::format("unknown flag {}{}", flag, suggest(flag, flags_of(place, true)));
}

// Most of CLI11's texts begin with the option.
std::string explain_kind(const CLI::App& app, const CLI::App& place, const CLI::Error& error) {
  const auto kind = static_cast<CLI::ExitCodes>(error.get_exit_code());
  std::string text = error.what();
  const std::string flag = text.substr(0, text.find_first_of(": "));
  switch (kind) {
    case CLI::ExitCodes::ArgumentMismatch:
      if (text.ends_with("missing")) return flag + " needs a value after it";
      if (text.ends_with("flag override")) return flag + " takes no value";
      return flag + " is given more than once";
    case CLI::ExitCodes::ConversionError: {
      // Rondo reads values itself; CLI11 converts only what follows the = of a switch.
      constexpr std::string_view before = "Could not convert: ";
      if (!text.starts_with(before)) return text;
      return text.substr(before.size(), text.find(' ', before.size()) - before.size()) +
             " takes no value";
    }
    case CLI::ExitCodes::ExcludesError:
      return fmt::format("{} and {} cannot be given together", flag,
                         text.substr(text.rfind(' ') + 1));
    case CLI::ExitCodes::ExtrasError:
      return explain_rest(app, place);
    case CLI::ExitCodes::RequiredError:
      if (&place == &app)
        return app.remaining(true).empty() ? "no command given" : explain_rest(app, place);
      return place.get_name() == "run" ? "the number of ranks is missing: rondo run -n 4 -- "
                                         "PROGRAM ARGUMENTS (--ranks is -n)"
                                       : flag + " is missing";
    default:
      return text;
  }
}

// Whether the value of this flag of `rondo run` is the next argument.
bool takes_next(std::string_view flag) {
  if (flag == "--ranks" || flag == "--grace" || flag == "--bind") return true;
  return flag.size() > 1 && flag[1] != '-' && flag.back() == 'n';
}

// The arguments of the process without its name, in a form that CLI11 can read. It leaves out the
// "--" before the program of `rondo run`, because CLI11 allows programs with flags of their own
// only without it. Throws UsageError for flags of other launchers.
std::vector<std::string> normalize_arguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty() || (arguments.front() != "run" && arguments.front() != "bench"))
    return arguments;
  const bool runs = arguments.front() == "run";
  for (std::size_t i = 1; i < arguments.size() && arguments[i].starts_with('-'); ++i) {
    if (arguments[i].starts_with("-np"))
      throw UsageError(runs ? "-np: the number of ranks is -n or --ranks here: rondo run -n 4 -- "
                              "PROGRAM ARGUMENTS"
                            : "-np: the number of ranks is --ranks here: rondo bench --ranks 4");
    if (runs && arguments[i] == "--") {
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    if (takes_next(arguments[i])) ++i;
  }
  return arguments;
}

// Explains CLI11's error in Rondo's words, and lists the possible names for an unknown flag or
// command. For CLI11's App::failure_message.
std::string explain(const CLI::App* app, const CLI::Error& error) {
  const auto chosen = app->get_subcommands();
  const CLI::App& place = chosen.empty() ? *app : *chosen.front();
  const std::string name = &place == app ? "rondo" : "rondo " + place.get_name();
  return fmt::format("{}: {}\n{}", name, explain_kind(*app, place, error), list(*app, place));
}

int run(int argc, char** argv) {
  CLI::App app{
      "Rondo: collective communication and messages between processes on one or several hosts, "
      "over\nTCP, RDMA, shared memory and CUDA IPC. This program measures operations, starts "
      "ranks, "
      "explains\nschedules, compares and draws what was measured, and compares dumps of ranks."};
  app.name("rondo");
  app.set_version_flag("--version", "rondo " + std::string(rondo::version()));
  app.failure_message(explain);
  app.footer(std::string(exit_statuses));
  app.require_subcommand(1);
  int exit_code = exit_fine;
  add_bench(app, own_command_line(argc, argv), exit_code);
  add_run(app, exit_code);
  add_info(app, exit_code);
  add_plan(app, exit_code);
  add_compare(app, exit_code);
  add_plot(app, exit_code);
  add_report(app, exit_code);
  add_trace(app, exit_code);
  std::vector<std::string> arguments = normalize_arguments(argc, argv);
  std::ranges::reverse(arguments);  // CLI11 takes them from the back
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

// SPDX-License-Identifier: Apache-2.0
#include "tools/shared/usage.h"

#include <fmt/format.h>

#include <string_view>

#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

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

}  // namespace

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

std::string explain(const CLI::App* app, const CLI::Error& error) {
  const auto chosen = app->get_subcommands();
  const CLI::App& place = chosen.empty() ? *app : *chosen.front();
  const std::string name = &place == app ? "rondo" : "rondo " + place.get_name();
  return fmt::format("{}: {}\n{}", name, explain_kind(*app, place, error), list(*app, place));
}

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "tools/ranks/spawn.h"
#include "tools/shared/commands.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

struct RunFlags {
  std::string ranks, grace = "10", bind;
  bool label = false;
};

const std::vector<std::string> run_flags{"-n", "--ranks", "-l", "--label", "--grace", "--bind"};

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "run", "Start the ranks of a program on this host and wait until all have ended");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("-n,--ranks", flags->ranks, "Number of ranks")->required();
  command->add_flag("-l,--label", flags->label,
                    "Begin every line of output with the rank it comes from");
  command->add_option("--grace", flags->grace,
                      "Seconds that the other ranks get to end by themselves after one has failed; "
                      "then SIGTERM,\n"
                      "three seconds later SIGKILL (default 10)");
  command->add_option("--bind", flags->bind,
                      "Binds each rank. core: to a core of its own; numa: to the cores of a NUMA "
                      "node; none: not\n"
                      "at all (default: core while there are enough, else numa)");
  command->footer(
      "rondo run -n RANKS [flags] [--] PROGRAM [ARGUMENTS]\n\n"
      "Each rank gets RONDO_RANK, RONDO_SIZE, RONDO_LOCAL_RANK, RONDO_LOCAL_SIZE,\n"
      "RONDO_RENDEZVOUS and RONDO_SECRET, and RONDO_INTERFACE=lo unless it is set: the ranks\n"
      "listen on loopback only.\n"
      "The exit status is that of the first rank that failed, 128 + signal when a signal killed "
      "it.\n"
      "For several hosts use mpirun, srun or torchrun.\n");
  command->prefix_command();
  command->callback([command, flags, &exit_code] {
    SpawnOptions options;
    options.name = "rondo run";
    options.ranks = parse_int("--ranks", flags->ranks, 1, most_ranks);
    options.grace =
        std::chrono::milliseconds(1000 * parse_number("--grace", flags->grace, 0, 86'400));
    options.label = flags->label;
    options.binding = parse_binding(flags->bind);
    options.command = command->remaining();
    if (!options.command.empty() && options.command.front().starts_with('-'))
      throw UsageError(fmt::format("unknown flag {}{}\nflags: {}", options.command.front(),
                                   suggest(options.command.front(), run_flags),
                                   join(run_flags, " ")));
    if (options.command.empty())
      throw UsageError("no program given: rondo run -n 4 -- PROGRAM ARGUMENTS");
    exit_code = spawn_ranks(options);
  });
}

}  // namespace rondo::tools

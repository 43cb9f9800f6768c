// SPDX-License-Identifier: Apache-2.0
//
// Starts the ranks of one job on this host and waits until all have ended: for `rondo run`, and for
// `rondo bench` without a launcher.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/ranks/bind.h"

namespace rondo::tools {

struct SpawnOptions {
  int ranks = 1;
  std::vector<std::string> command;  // program, which is looked for in PATH, and arguments
  std::string name;                  // of the command that starts them ("rondo run"), for messages
  std::chrono::milliseconds grace{
      10'000};  // time for the others after one rank failed; then SIGTERM and SIGKILL
  std::optional<Binding> binding;  // of --bind
  bool label = false;              // every line of output starts with [rank]
  // True: a rank that fails prints the cause itself, so only a rank that a signal killed is
  // reported.
  bool explained = false;
};

// The most ranks that are started on one host.
inline constexpr int most_ranks = 1024;

// Returns when every rank has ended. The result is 0, or the status of the first rank that failed:
// 128 + signal when a signal killed it, 127 when the program is not there, 126 when it cannot be
// run. When only labelled lines were lost it is that of OutputLost.
// SIGUSR1 and SIGUSR2 go on to the ranks, and so do SIGINT, SIGTERM and SIGHUP, where a second
// signal kills them. The same signal again within a second counts once. Signals that this process
// was started to ignore stay ignored, in the ranks too. The ranks die with this process, whatever
// kills it. Call it in the main thread, with no other thread running. Throws std::system_error when
// a system call fails, and UsageError as bind_ranks() does.
int spawn_ranks(const SpawnOptions& options);

// The command that starts this process again: its arguments, with the path of its executable in
// front. Works without /proc. Call it before the working directory changes.
std::vector<std::string> own_command_line(int argc, char** argv);

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
//
// Starts the ranks of one job on this host and sees them to their end: what `rondo run` does, and
// `rondo bench` without a launcher.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace rondo::tools {

struct SpawnOptions {
  int ranks = 1;
  std::vector<std::string> command;  // program and arguments; the program is looked for in PATH
  std::string name;                  // of what is starting them ("rondo run"), for messages
  std::chrono::milliseconds grace{
      10'000};         // for the others to end when one rank has failed; then SIGTERM and SIGKILL
  bool label = false;  // every line of output starts with [rank]
  // A rank that exits with a status has said why: only signals are worth a message.
  bool explained = false;
};

// The most ranks that are started on one host.
inline constexpr int most_ranks = 1024;

// Returns when every rank has ended: 0, or the status of the first that failed (128 + signal when
// one killed it, 127 when the program is not there, 126 when it cannot be run). SIGINT and SIGTERM
// go on to the ranks; a second one ends them at once, and the same one again within a second counts
// as one. What this process was told to ignore it and the ranks do ignore. The ranks die with this
// process whatever kills it. Throws std::system_error when the system refuses.
int spawn_ranks(const SpawnOptions& options);

}  // namespace rondo::tools

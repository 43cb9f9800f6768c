// SPDX-License-Identifier: Apache-2.0
//
// The connection of a benchmark's rank to the driver (bench/peers/group.py).
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace rondo::compare {

// Lines of text over a Unix socket. When the driver closes the connection or dies, this process
// ends at once, even in the middle of an operation: no rank outlives its driver. Thread-bound; a
// thread of its own watches the connection. Errors throw.
class Control {
 public:
  explicit Control(const std::string& path);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();

  // Data or the end of the connection is there, so read_line() does not wait long.
  bool readable() const;
  // Sleeps until the next line is there. Returns nullopt at the end of the connection.
  std::optional<std::string> read_line();
  void write_line(std::string line);

 private:
  void end_with_driver();

  int socket_;
  std::string received_;
  std::atomic<bool> closing_ = false;
  std::thread watcher_;
};

// "ready RANK SIZE ALGORITHM...", the first line of every rank.
std::string ready_line(int rank, int size, const std::vector<std::string>& algorithms);

// Connects to the driver at `path` and calls rank(control). An exception reaches the driver as one
// line, "failed EXPLANATION". Returns the exit status.
int run_controlled(const std::string& path, const std::function<void(Control&)>& rank);

}  // namespace rondo::compare

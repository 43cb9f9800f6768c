// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace rondo::compare {

// The connection of a rank to the driver: lines of text over a Unix socket. When the driver hangs
// up, for whatever reason, the process ends at once, even in the middle of an operation: no rank
// outlives its driver.
class Control {
 public:
  explicit Control(const std::string& path);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();

  // A line or the end of the connection is there: read_line() will not wait long.
  bool readable() const;
  // Sleeps until the next line has come; nothing at the end of the connection.
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

// Runs a rank that this driver controls. What it throws reaches the driver as "failed EXPLANATION",
// in one line. The exit status.
int run_controlled(const std::string& path, const std::function<void(Control&)>& rank);

}  // namespace rondo::compare

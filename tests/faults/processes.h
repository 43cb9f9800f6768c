// SPDX-License-Identifier: Apache-2.0
//
// Runs ranks as processes, and reads their output through pipes. The destructor kills the process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"

namespace rondo {

class Process {
 public:
  // Runs the program with these arguments. Its environment is that of this process, changed by
  // these variables.
  Process(const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment);
  Process(Process&&) = default;
  ~Process();  // kills it

  void signal(int number) const;
  // Returns the next line of its output; empty when none comes in time or the output has ended.
  std::string line(base::TimePoint until);
  // Returns the exit status, or 128 + signal; -1 when it still runs at `until`.
  int wait(base::TimePoint until);

 private:
  base::FileDescriptor pid_;  // a pidfd
  base::FileDescriptor input_, output_;
  std::string text_;
};

// A new temporary directory. The destructor removes it with its contents.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace rondo

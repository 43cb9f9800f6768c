// SPDX-License-Identifier: Apache-2.0
//
// Ranks as real processes, with pipes to what they say. Nothing outlives the object.
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
  // Runs the program with these arguments and, on top of this process's own environment, these
  // variables.
  Process(const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment);
  Process(Process&&) = default;
  ~Process();  // kills it

  void signal(int number) const;
  // The next line of its output; empty when there is none by then, or no more.
  std::string line(base::TimePoint until);
  // The wait status; -1 when it is still running then.
  int wait(base::TimePoint until);

 private:
  base::FileDescriptor pid_;  // a pidfd
  base::FileDescriptor input_, output_;
  std::string text_;
};

// A directory that goes away with everything in it.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace rondo

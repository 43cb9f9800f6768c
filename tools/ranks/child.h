// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cores.h"
#include "base/file_descriptor.h"

namespace rondo::tools {

// 32 random bytes from the system, in hexadecimal.
std::string random_secret();

struct Child {
  pid_t pid = -1;
  int exec_error = 0;  // errno of execvpe when the program could not be started; then the process
                       // has ended and is reaped
  base::FileDescriptor out, error;  // read ends of its standard output and error when captured
};

// Starts a program. The kernel kills it when the calling thread ends, so call this from the main
// thread. `changes` are environment variables to set; an empty value removes the variable. The
// child has no blocked signals, and `descriptors` is its limit of open files. It runs on
// `processors`. If there are none, or if the system refuses to bind it, it runs where this thread
// may run. Throws std::system_error when a system call fails.
Child start_child(const std::vector<std::string>& command,
                  const std::vector<std::pair<std::string, std::string>>& changes, bool capture,
                  const rlimit& descriptors, const base::ProcessorSet& processors);

// Raises this process's limit of open files to the hard limit, because many labelled ranks need
// many pipes; the destructor restores it. Give programs that this process starts before() again:
// some size their tables by the limit. A failed change is ignored.
class DescriptorLimit {
 public:
  DescriptorLimit() {
    if (::getrlimit(RLIMIT_NOFILE, &before_) != 0) before_ = {RLIM_INFINITY, RLIM_INFINITY};
    const rlimit raised{before_.rlim_max, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &raised);
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

  const rlimit& before() const noexcept { return before_; }

 private:
  rlimit before_{};
};

// Forwards one captured stream of a rank by whole lines, each with the rank in front. A line longer
// than 64 KiB is cut. Functions that write to standard output throw OutputLost when that fails.
class LabelledStream {
 public:
  enum class To { output, error };

  // `from` must not block.
  LabelledStream(base::FileDescriptor from, To to, int rank)
      : from_(std::move(from)), to_(to), rank_(rank) {}

  To to() const noexcept { return to_; }
  bool open() const noexcept { return static_cast<bool>(from_); }
  int descriptor() const noexcept { return from_.get(); }
  // Forwards what has arrived; closes at the end of the stream. Throws OutputLost.
  void forward();
  // As forward(), then closes and writes the last line even without its newline. What a process
  // that the rank left behind writes later is lost. Throws OutputLost.
  void finish();
  // Both are for output that cannot be written any more. After close() the rank's next write ends
  // by SIGPIPE, as it would without this process. After discard() the rank goes on, and its output
  // is lost.
  void close();
  void discard();

 private:
  void write_line(std::string_view line);
  void write_lines();

  base::FileDescriptor from_;
  To to_;
  int rank_;
  bool discards_ = false;
  std::string pending_;
};

}  // namespace rondo::tools

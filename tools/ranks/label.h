// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"

namespace rondo::tools {

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

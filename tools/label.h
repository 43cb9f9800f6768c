// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"

namespace rondo::tools {

// One captured stream of a rank: writes whole lines on, with the rank in front.
class LabelledStream {
 public:
  enum class To { output, error };

  // `from` must not block.
  LabelledStream(base::FileDescriptor from, To to, int rank)
      : from_(std::move(from)), to_(to), rank_(rank) {}

  To to() const noexcept { return to_; }
  bool open() const noexcept { return static_cast<bool>(from_); }
  int descriptor() const noexcept { return from_.get(); }
  // Forwards what has come; closes at the end of the stream. Throws OutputLost.
  void forward();
  // As forward(), and the last line even when it is not whole; what a process left behind may still
  // write is lost.
  void finish();
  // For output that cannot be written any more. After close() the rank's next write ends as it
  // would without this process: by SIGPIPE. After discard() the rank goes on, and its output is
  // lost.
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "tools/descriptor.h"

namespace rondo::tools {

// One captured stream of a rank: whole lines go on to a file with the rank in front.
class LabelledStream {
 public:
  // `from` must not block.
  LabelledStream(Descriptor from, std::FILE* to, int rank) : from_(std::move(from)), to_(to), rank_(rank) {}

  bool open() const noexcept { return static_cast<bool>(from_); }
  int descriptor() const noexcept { return from_.get(); }
  // What is there now; closes at the end of the stream.
  void forward();
  // As forward(), and the last line even when it is not whole; what a process left behind may still write is lost.
  void finish();

 private:
  void write_line(std::string_view line);
  void write_lines();

  Descriptor from_;
  std::FILE* to_;
  int rank_;
  std::string pending_;
};

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
//
// A Chrome trace: {"traceEvents": [one event a line]}. Times in microseconds of rank 0's steady
// clock.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "grad/trace.h"

namespace rondo::grad {

// Does nothing more after its first problem, which commit() tells.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path);
  ~TraceFile();  // what was not committed is removed
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void add_rank(int rank, int size, const RankTrace& trace);
  // Gives the file its name. What is wrong, naming file and reason; empty: nothing.
  std::string commit();

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  void write(const std::string& line);
  void failed(const std::string& doing);

  std::string path_, temporary_, problem_;
  std::unique_ptr<std::FILE, Close> file_;
  bool first_ = true;
};

}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
//
// A Chrome trace: {"traceEvents": [one event a line]}. Times in microseconds of rank 0's steady
// clock.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "grad/trace.h"

namespace rondo::grad {

// Writes the file. After its first problem it does nothing more; commit() returns that problem.
//
// Threads: thread-bound. Locks: none. Failure: only commit() reports it; nothing throws.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path);
  ~TraceFile();  // removes the file if it was not committed
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void add_rank(int rank, int size, const RankTrace& trace);
  // Gives the file its name. Returns the problem, with file and reason; empty if there is none.
  std::string commit();

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  void write(const std::string& line);
  // "cannot DOING the temporary file REST", with the reason in errno.
  void failed(std::string_view doing, const std::string& rest = {});

  std::string path_, temporary_, problem_;
  std::unique_ptr<std::FILE, Close> file_;
  bool first_ = true;
};

}  // namespace rondo::grad

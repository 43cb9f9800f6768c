// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace train {

// What people see of a run: lines on standard output and, where standard error is a terminal, one
// line that is written over.
class Console {
 public:
  explicit Console(bool speaks);  // one rank does

  void line(const std::string& text);
  // At most ten times a second.
  void progress(std::size_t step, std::size_t steps, std::size_t epoch, double loss);

 private:
  bool speaks_, terminal_;
  bool dirty_ = false;  // something stands in the line that is written over
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace train

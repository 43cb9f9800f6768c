// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace train {

// Prints the lines of a run to standard output. Where standard error is a terminal, it also shows a
// progress line that is overwritten.
class Console {
 public:
  explicit Console(bool speaks);  // true on one rank; the others print nothing

  void line(const std::string& text);
  // At most ten times a second.
  void progress(std::size_t step, std::size_t steps, std::size_t epoch, double loss);

 private:
  bool speaks_, terminal_;
  bool dirty_ = false;  // the progress line shows something
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace train

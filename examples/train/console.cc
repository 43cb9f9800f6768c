// SPDX-License-Identifier: Apache-2.0
#include "examples/train/console.h"

#include <unistd.h>

#include <fmt/format.h>

#include <cstdio>

namespace train {

Console::Console(bool speaks)
    : speaks_(speaks), terminal_(speaks && ::isatty(STDERR_FILENO) == 1) {}

void Console::line(const std::string& text) {
  if (!speaks_) return;
  if (dirty_) fmt::print(stderr, "\r\033[K");
  dirty_ = false;
  fmt::print("{}\n", text);
  std::fflush(stdout);  // so that each line appears at once, also through a pipe
}

void Console::progress(std::size_t step, std::size_t steps, std::size_t epoch, double loss) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - last_ < std::chrono::milliseconds{100}) return;
  last_ = now;
  constexpr std::size_t width = 30;
  const std::size_t done = steps == 0 ? 0 : step * width / steps;
  fmt::print(stderr, "\r\033[K[{:=<{}}{:{}}] step {} of {}, epoch {}, loss {:.3f}", "", done, "",
             width - done, step, steps, epoch, loss);
  std::fflush(stderr);
  dirty_ = true;
}

}  // namespace train

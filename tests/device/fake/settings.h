// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fake {

// Prints "fake CUDA: message" and aborts: the program did what CUDA leaves undefined.
[[noreturn]] void stop_test(const std::string& message);

// The settings of control.h. They are read when the library is loaded.
struct Settings {
  struct Failure {
    std::string function;
    unsigned nth;
    int status;
  };
  int gpus = 1, first = 0, host = 0, init = 0, mode = 0, helper = 0;
  std::uint64_t seed = 1;
  unsigned delay_us = 20, hang_s = 30;
  std::size_t piece = 262144, memory = std::size_t{4096} << 20;
  bool leaks_fail = false;
  std::atomic<bool> peers{true}, can_export{true}, ipc{true}, vmm{true};
  std::vector<Failure> failures;

  // Aborts where there is no such permission.
  std::atomic<bool>& permission(const std::string& what);
};
Settings& settings();

}  // namespace fake

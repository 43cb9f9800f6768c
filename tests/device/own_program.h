// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// How a test case of this program ended that ran in a process of its own.
struct Ended {
  int status = 0;      // the exit status, or 128 and the signal
  std::string output;  // of both streams
};

// Runs one hidden test case with these settings of the fake driver. variables: "NAME=VALUE ...",
// for the process. A new program is needed because CUDA does not work in a child of fork().
Ended run_own(const std::string& test_case, const std::string& settings = "leaks=fail",
              const std::string& variables = "");

// For a test case that ends by a signal: Catch prints nothing of it, and the process ends at once.
void leave_signals_alone();

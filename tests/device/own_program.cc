// SPDX-License-Identifier: Apache-2.0
#include "own_program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <stdexcept>

Ended run_own(const std::string& test_case, const std::string& settings,
              const std::string& variables) {
  std::array<char, 4096> path{};
  if (::readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0)
    throw std::runtime_error("this program has no path");
  // No core file.
  const std::string command = "ulimit -c 0; " + variables + " FAKE_CUDA='" + settings + "' exec '" +
                              path.data() + "' --warn NoTests '" + test_case + "' 2>&1";
  std::FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) throw std::runtime_error("popen");
  Ended ended;
  for (int each = std::fgetc(output); each != EOF; each = std::fgetc(output))
    ended.output += static_cast<char>(each);
  const int status = ::pclose(output);
  ended.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended;
}

void leave_signals_alone() {
  std::signal(SIGABRT, SIG_DFL);
  std::signal(SIGSEGV, SIG_DFL);
}

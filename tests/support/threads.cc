// SPDX-License-Identifier: Apache-2.0
#include "support/threads.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

namespace rondo::testing {

namespace {

std::string first_line(const std::filesystem::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

std::string describe(const std::filesystem::path& task) {
  const std::string stat = first_line(task / "stat");
  // The name stands in parentheses and may contain some. The state is field 3, the times in user
  // and kernel mode are fields 14 and 15.
  std::istringstream rest(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string state, skipped;
  rest >> state;
  for (int field = 4; field < 14; ++field) rest >> skipped;
  double user = 0, kernel = 0;
  rest >> user >> kernel;
  const std::string call = first_line(task / "syscall");
  return fmt::format("thread {} {}: {}, ran {:.2f} s, system call {}\n", task.filename().string(),
                     first_line(task / "comm"), state,
                     (user + kernel) / static_cast<double>(::sysconf(_SC_CLK_TCK)),
                     call.empty() ? "unknown" : call.substr(0, call.find(' ')));
}

}  // namespace

std::string describe_threads() {
  std::string text;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator task("/proc/self/task", error); !error && task != end;
       task.increment(error))
    text += describe(task->path());
  return text;
}

}  // namespace rondo::testing

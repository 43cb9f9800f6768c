// SPDX-License-Identifier: Apache-2.0
#include "tools/program.h"

#include <sys/auxv.h>

#include <filesystem>
#include <system_error>

namespace rondo::tools {

std::vector<std::string> own_command_line(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  if (words.empty()) words.emplace_back("rondo");
  std::error_code unknown;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown) {
    words.front() = here.string();
  } else if (const auto given = ::getauxval(AT_EXECFN); given != 0) {
    // The path that execve was given; the kernel hands over its address as a number.
    const auto* path = reinterpret_cast<const char*>(given);  // NOLINT(performance-no-int-to-ptr)
    words.front() = std::filesystem::absolute(path, unknown).string();
  }
  return words;
}

}  // namespace rondo::tools

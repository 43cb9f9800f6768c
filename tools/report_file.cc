// SPDX-License-Identifier: Apache-2.0
#include "tools/report_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "tools/text.h"

namespace rondo::tools {

void write_report(const std::string& path, std::string_view text) {
  const auto refuse = [&] {
    throw UsageError(fmt::format("{}: {}", path, std::generic_category().message(errno)));
  };
  if (path == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) refuse();
    return;
  }
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"), std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) refuse();
  if (std::fclose(file.release()) != 0) refuse();
}

}  // namespace rondo::tools

// SPDX-License-Identifier: Apache-2.0
#include "examples/train/replaceable.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace train {

void check_replaceable(const std::string& path, const std::string& suffix) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind == std::filesystem::file_type::directory)
    throw std::runtime_error(fmt::format("'{}' cannot be written: it is a directory", path));
  if (std::filesystem::exists(path, ignored) && kind != std::filesystem::file_type::regular)
    throw std::runtime_error(
        fmt::format("'{}' would be replaced, and it is no regular file", path));
  const std::string fresh = path + suffix;
  const bool was_there = std::filesystem::exists(fresh, ignored);
  errno = 0;
  if (!std::ofstream(fresh, std::ios::app))
    throw std::runtime_error(
        fmt::format("'{}' cannot be written: {}", fresh, std::generic_category().message(errno)));
  if (!was_there) std::filesystem::remove(fresh, ignored);
}

}  // namespace train

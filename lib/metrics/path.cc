// SPDX-License-Identifier: Apache-2.0
#include "lib/metrics/path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include <rondo/error.h>

#include "base/process.h"

namespace rondo::metrics {
namespace {

[[noreturn]] void refuse(std::string_view pattern, const std::string& why) {
  throw Error(Errc::invalid_argument,
              fmt::format("RONDO_METRICS (Options::metrics) is '{}': {}", pattern, why));
}

void check_folder(std::string_view pattern, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0)
    refuse(pattern,
           fmt::format("the folder {} cannot be used ({}); make it, or name a folder that exists, "
                       "such as the one of node_exporter's textfile collector",
                       folder, std::generic_category().message(errno)));
  if (!S_ISDIR(status.st_mode)) refuse(pattern, fmt::format("{} is not a folder", folder));
  if (slash + 1 == path.size() || (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)))
    refuse(pattern, "it is a folder; add the name of a file, such as /rondo.prom");
}

}  // namespace

std::string path_of(std::string_view pattern, int rank) {
  std::string path;
  bool is_own = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      path += pattern[i];
      continue;
    }
    switch (++i < pattern.size() ? pattern[i] : '\0') {
      case 'r':
        path += std::to_string(rank);
        is_own = true;
        break;
      case 'p':
        path += std::to_string(::getpid());
        is_own = true;
        break;
      case 'h':
        path += base::host_name();
        break;
      case '%':
        path += '%';
        break;
      default:
        refuse(pattern, "% must be followed by r (the rank), p (the process), h (the host) or %");
    }
  }
  check_folder(pattern, path);
  if (is_own) return path;
  const std::size_t name = path.rfind('/') + 1;  // 0 without a slash
  const std::size_t dot = path.rfind('.');
  const bool has_ending = dot != std::string::npos && dot > name;
  return path.insert(has_ending ? dot : path.size(), fmt::format(".{}", rank));
}

}  // namespace rondo::metrics

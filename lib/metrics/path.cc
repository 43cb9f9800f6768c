// SPDX-License-Identifier: Apache-2.0
#include "lib/metrics/path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <system_error>

#include <fmt/format.h>

#include <rondo/error.h>

#include "base/process.h"
#include "base/text.h"
#include "lib/metrics/totals.h"

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

// Labels that samples have already.
constexpr std::array<std::string_view, 6> taken{"rank", "operation", "cause",
                                                "tag",  "transport", "late_rank"};

// Whether Prometheus allows the name: letters, digits and _, not a digit or __ first.
bool is_label(std::string_view name) {
  return !name.empty() && !(name[0] >= '0' && name[0] <= '9') && !name.starts_with("__") &&
         std::ranges::all_of(name, [](char c) {
           return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
         });
}

// Returns the name of the file without .prom, placeholders, and separators at its ends:
// "train-%r.prom" gives "train". Appends the job's number if two runs may share that name.
std::string run_of(std::string_view pattern, std::uint64_t job) {
  std::string_view name = pattern.substr(pattern.rfind('/') + 1);
  if (name.ends_with(".prom")) name.remove_suffix(5);
  std::string run;
  bool by_process = false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%') {
      run += name[i];
    } else if (++i < name.size()) {
      by_process = by_process || name[i] == 'p';
      if (name[i] == '%') run += '%';
    }
  }
  const std::size_t begin = std::min(run.find_first_not_of("._-"), run.size());
  run = run.substr(begin, run.find_last_not_of("._-") + 1 - begin);
  if (by_process || run.empty())
    run += fmt::format("{}{:08x}", run.empty() ? "" : "-", job & 0xffffffff);
  return run;
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

std::string labels_of(std::span<const std::string> labels, std::string_view pattern,
                      std::uint64_t job) {
  std::map<std::string, std::string> values;
  for (const std::string& label : labels) {
    const std::size_t equals = std::min(label.find('='), label.size());
    const std::string name(base::trim(label.substr(0, equals)));
    const auto refuse_label = [&](std::string_view why) {
      throw Error(Errc::invalid_argument,
                  fmt::format("RONDO_METRICS_LABELS (Options::metrics_labels) has '{}': {}",
                              base::printable(label.substr(0, 200)), why));
    };
    if (equals == label.size()) refuse_label("give NAME=VALUE, as in run=mine,team=vision");
    if (!is_label(name))
      refuse_label("a name has letters, digits and _, and begins with neither a digit nor __");
    if (std::ranges::find(taken, name) != taken.end())
      refuse_label("samples have a label of this name already; take another");
    if (!values.emplace(name, base::printable(label.substr(equals + 1))).second)
      refuse_label("this name comes twice");
  }
  values.emplace("run", base::printable(run_of(pattern, job)));
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, escaped(value));
  return text;
}

}  // namespace rondo::metrics

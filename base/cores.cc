// SPDX-License-Identifier: Apache-2.0
//
// Files of Linux that are read here, all in proc(5) and cgroups(7):
//   /proc/self/cgroup     lines "0::/path" (version 2) and "4:cpu,cpuacct:/path" (version 1)
//   /proc/self/mountinfo  where these hierarchies are mounted, and which part of them
//   cpu.max               "QUOTA PERIOD" in microseconds, or "max PERIOD" (version 2)
//   cpu.cfs_quota_us      -1 without a quota; with cpu.cfs_period_us (version 1)
#include "base/cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/mix.h"
#include "base/process.h"
#include "base/text.h"

namespace rondo::base {
namespace {

constexpr std::size_t mask_word_bits = 8 * sizeof(unsigned long);

// A hierarchy of control groups: where it is mounted, and the group of this process below that.
struct Hierarchy {
  bool unified = false;  // version 2
  std::string mounted_at;
  std::string group;  // "/job/step"; empty for the group that is mounted
};

bool names_controller(std::string_view list, std::string_view controller) {
  const std::vector<std::string_view> names = split(list, ',');
  return std::ranges::find(names, controller) != names.end();
}

// mountinfo writes blanks in paths as \040 and the like.
std::string unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digits = text.substr(std::min(i + 1, text.size()), 3);
    if (text[i] != '\\' || digits.size() != 3 ||
        digits.find_first_not_of("01234567") != std::string_view::npos) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
    i += 3;
  }
  return plain;
}

// The path of this process's group in the hierarchy, seen from the hierarchy's root.
std::optional<std::string> own_group(const std::string& root, bool unified,
                                     std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view list = std::string_view(line).substr(first + 1, second - first - 1);
    if (unified ? list.empty() : names_controller(list, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// A container may see only a part of the hierarchy, which is mounted as if it were the whole. Its
// group can lie outside that part; then the group that is mounted counts.
std::string below(std::string_view group, std::string_view mounted) {
  if (mounted == "/") mounted = {};
  if (!group.starts_with(mounted) || group.find("..") != std::string_view::npos) return {};
  group.remove_prefix(mounted.size());
  return group == "/" || (!group.empty() && group.front() != '/') ? std::string()
                                                                  : std::string(group);
}

// One line of mountinfo: number, parent, device, root, mount point, options, any number of optional
// fields, "-", type, source, options of the file system.
std::optional<Hierarchy> read_mount(const std::string& root, const std::string& line,
                                    std::string_view controller) {
  const auto separator = line.find(" - cgroup");  // most lines have another type
  if (separator == std::string::npos) return std::nullopt;
  std::istringstream before(line);
  std::string number, parent, device, mounted, mounted_at, dash, type, source, options;
  before >> number >> parent >> device >> mounted >> mounted_at;
  if (!before) return std::nullopt;
  std::istringstream after(line.substr(separator + 3));
  after >> type >> source >> options;
  const bool unified = type == "cgroup2";
  if (!unified && (type != "cgroup" || !names_controller(options, controller))) return std::nullopt;
  const auto group = own_group(root, unified, controller);
  if (!group) return std::nullopt;
  return Hierarchy{unified, unescape(mounted_at), below(*group, unescape(mounted))};
}

std::vector<Hierarchy> find_hierarchies(const std::string& root, std::string_view controller) {
  std::vector<Hierarchy> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);)
    if (auto hierarchy = read_mount(root, line, controller)) found.push_back(std::move(*hierarchy));
  return found;
}

// The parent of "/job/step" is "/job", whose parent is "", which is the last.
bool to_parent(std::string& group) {
  if (group.empty()) return false;
  group.erase(group.rfind('/'));
  return true;
}

std::optional<double> read_number(const std::string& path) {
  return parse_whole<double>(trim(read_short_file(path)));
}

std::optional<double> read_unified_quota(const std::string& path) {
  std::istringstream text(read_short_file(path));
  std::string quota;
  double period = 0;
  text >> quota >> period;
  const auto time = parse_whole<double>(quota);  // no number: "max"
  if (!text || !time || *time <= 0 || period <= 0) return std::nullopt;
  return *time / period;
}

std::optional<double> read_old_quota(const std::string& path, const std::string& period_path) {
  const auto time = read_number(path), period = read_number(period_path);
  if (!time || !period || *time <= 0 || *period <= 0) return std::nullopt;
  return *time / *period;
}

std::optional<CpuQuota> quota_of(const std::string& root, const Hierarchy& hierarchy,
                                 const std::string& group) {
  const std::string folder = hierarchy.mounted_at + group;
  const std::string file = folder + (hierarchy.unified ? "/cpu.max" : "/cpu.cfs_quota_us");
  const auto processors = hierarchy.unified
                              ? read_unified_quota(root + file)
                              : read_old_quota(root + file, root + folder + "/cpu.cfs_period_us");
  if (!processors || !std::isfinite(*processors)) return std::nullopt;
  struct stat status {};
  if (::stat((root + file).c_str(), &status) != 0) return std::nullopt;
  return CpuQuota{*processors, file,
                  mix_hash(static_cast<std::uint64_t>(status.st_dev), status.st_ino)};
}

ProcessorSet online_processors(const std::string& root) {
  if (const auto online =
          parse_processors(trim(read_short_file(root + "/sys/devices/system/cpu/online"))))
    return *online;
  ProcessorSet all;
  const long count = std::clamp(::sysconf(_SC_NPROCESSORS_ONLN), 1L, long{most_processors});
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) all.set(i);
  return all;
}

}  // namespace

std::string describe_processors(const ProcessorSet& processors) {
  std::string text;
  for (std::size_t first = 0; first < most_processors; ++first) {
    if (!processors[first]) continue;
    std::size_t last = first;
    while (last + 1 < most_processors && processors[last + 1]) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last > first) text += fmt::format("-{}", last);
    first = last;
  }
  return text;
}

std::optional<ProcessorSet> parse_processors(std::string_view text) {
  ProcessorSet processors;
  for (const std::string_view part : split(text, ',')) {
    const auto dash = std::min(part.find('-'), part.size());
    const auto first = parse_whole<std::size_t>(part.substr(0, dash));
    const auto last = dash == part.size() ? first : parse_whole<std::size_t>(part.substr(dash + 1));
    if (!first || !last || *first > *last || *last >= most_processors) return std::nullopt;
    for (std::size_t i = *first; i <= *last; ++i) processors.set(i);
  }
  return processors.any() ? std::optional(processors) : std::nullopt;
}

int CpuQuota::rounded_up() const noexcept {
  return static_cast<int>(std::clamp(std::ceil(processors), 1.0, double{most_processors}));
}

std::optional<CpuQuota> read_cpu_quota(const std::string& root) {
  std::optional<CpuQuota> least;
  for (const Hierarchy& hierarchy : find_hierarchies(root, "cpu")) {
    std::string group = hierarchy.group;
    do {
      auto quota = quota_of(root, hierarchy, group);
      if (quota && (!least || quota->processors < least->processors)) least = std::move(quota);
    } while (to_parent(group));
  }
  return least;
}

std::vector<unsigned long> kernel_mask(const ProcessorSet& processors) {
  std::vector<unsigned long> words;
  if (processors.none()) return words;
  words.resize(most_processors / mask_word_bits);
  for (std::size_t i = 0; i < most_processors; ++i)
    if (processors[i]) words[i / mask_word_bits] |= 1UL << (i % mask_word_bits);
  return words;
}

ProcessorSet affinity_mask() {
  std::array<unsigned long, most_processors / mask_word_bits> words{};
  ProcessorSet mask;
  if (::sched_getaffinity(0, sizeof words, reinterpret_cast<cpu_set_t*>(words.data())) != 0)
    return online_processors({});
  for (std::size_t i = 0; i < most_processors; ++i)
    if ((words[i / mask_word_bits] >> (i % mask_word_bits) & 1) != 0) mask.set(i);
  return mask;
}

ProcessorSet allowed_processors(const std::string& root) {
  ProcessorSet allowed = online_processors(root);
  for (const Hierarchy& hierarchy : find_hierarchies(root, "cpuset")) {
    const std::string folder = root + hierarchy.mounted_at + hierarchy.group;
    for (const char* name : {"/cpuset.cpus.effective", "/cpuset.effective_cpus"})
      if (const auto its = parse_processors(trim(read_short_file(folder + name)))) allowed &= *its;
  }
  return allowed | affinity_mask();
}

int UsableCores::count() const noexcept {
  const int processors = std::max(1, static_cast<int>(mask.count()));
  return quota ? std::min(processors, quota->rounded_up()) : processors;
}

bool UsableCores::quota_is_smaller() const noexcept {
  return quota && quota->processors < static_cast<double>(mask.count());
}

UsableCores find_usable_cores() {
  return {affinity_mask(), read_cpu_quota()};
}

int usable_cores() noexcept {
  try {
    return find_usable_cores().count();
  } catch (...) {  // no memory for the names of files
    return 1;
  }
}

std::string describe_quota_risk(const UsableCores& cores) {
  if (!cores.quota_is_smaller()) return {};
  return fmt::format(
      "the CPU quota of {} is {:.2f} cores, fewer than the {} of the affinity mask: ranks that "
      "spin use it up, and then no rank runs until the next period. Set RONDO_WAIT=sleep, or give "
      "the job a quota of as many CPUs as it has ranks on this host",
      cores.quota->file, cores.quota->processors, cores.mask.count());
}

}  // namespace rondo::base

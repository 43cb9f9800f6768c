// SPDX-License-Identifier: Apache-2.0
//
// The processors that this process may use: those of its affinity mask, and no more of them at a
// time than the CPU quota of its control group allows. Thread-safe.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::base {

// The most processors for which Linux can be built on x86-64.
inline constexpr std::size_t most_processors = 8192;
// Processors by their numbers in Linux: the hardware threads of all cores.
using ProcessorSet = std::bitset<most_processors>;

// "0-3,8"; empty for no processor.
std::string describe_processors(const ProcessorSet& processors);
// Reads what describe_processors() writes, and the files of Linux with such lists. No value for
// another text, or for a number that is not below most_processors.
std::optional<ProcessorSet> parse_processors(std::string_view text);

// The processor time that a control group may use in each period, as a number of processors.
struct CpuQuota {
  double processors = 0;
  std::string file;         // the file that sets it: "/sys/fs/cgroup/job/cpu.max"
  std::uint64_t group = 0;  // the same for all processes of this host that share the quota
  // The number of processors, rounded up: at least 1.
  int rounded_up() const noexcept;
};

// Finds the smallest quota of the control groups of this process and of their ancestors, in both
// versions of control groups. `root` stands before every path that is read; tests give a folder.
std::optional<CpuQuota> read_cpu_quota(const std::string& root = {});

// Returns the mask in the words that sched_setaffinity(2) takes; none for an empty set.
std::vector<unsigned long> kernel_mask(const ProcessorSet& processors);

// The affinity mask of the calling thread. If the system does not tell it: all processors online.
ProcessorSet affinity_mask();
// The processors that the host, or the container's cpuset, has for a thread that nobody binds. It
// contains affinity_mask().
ProcessorSet allowed_processors(const std::string& root = {});

struct UsableCores {
  ProcessorSet mask;
  std::optional<CpuQuota> quota;
  int count() const noexcept;  // at least 1
  // Whether threads that spin on all processors of the mask use up the quota.
  bool quota_is_smaller() const noexcept;
};
UsableCores find_usable_cores();
// Returns find_usable_cores().count(): how many threads of this process can run at a time. Returns
// 1 if there is no memory to find out.
int usable_cores() noexcept;

// Says that the quota is smaller than the mask, what that does to ranks that spin, and what to do.
// The mask may be that of several ranks together. Empty unless cores.quota_is_smaller().
std::string describe_quota_risk(const UsableCores& cores);

}  // namespace rondo::base

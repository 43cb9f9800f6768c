// SPDX-License-Identifier: Apache-2.0
#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "catch.h"

using namespace rondo;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

// A root with the files of a made-up host.
class Root {
 public:
  Root() {
    std::string name = fs::temp_directory_path() / "rondo-cores-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  ~Root() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(path_ + path).parent_path());
    std::ofstream(path_ + path) << text;
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// Mounts of a host with version 2.
constexpr const char* unified_mounts =
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
    "31 22 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

void make_unified(const Root& root, const std::string& group) {
  root.write("/proc/self/cgroup", "0::" + group + "\n");
  root.write("/proc/self/mountinfo", unified_mounts);
}

double processors(const Root& root) {
  const auto quota = base::read_cpu_quota(root.path());
  return quota ? quota->processors : 0;
}

}  // namespace

TEST_CASE("lists of processors") {
  const auto back = [](std::string_view text) {
    const auto set = base::parse_processors(text);
    return set ? base::describe_processors(*set) : "nothing";
  };
  CHECK(back("0") == "0");
  CHECK(back("0-3,8") == "0-3,8");
  CHECK(back("8,0-2,3") == "0-3,8");
  CHECK(back("8190-8191") == "8190-8191");
  for (const char* bad : {"", ",", "a", "3-1", "8192", "0-8192", "1-", "-1", "1 2"}) {
    INFO(bad);
    CHECK(back(bad) == "nothing");
  }
  CHECK(base::describe_processors({}).empty());
}

TEST_CASE("the mask that the kernel takes is the one that it gives") {
  std::thread([] {
    const base::ProcessorSet before = base::affinity_mask();
    base::ProcessorSet one;
    for (std::size_t i = 0; i < base::most_processors && one.none(); ++i) one[i] = before[i];
    const auto words = base::kernel_mask(one);
    const auto* const mask = reinterpret_cast<const cpu_set_t*>(words.data());
    REQUIRE(::sched_setaffinity(0, words.size() * sizeof words.front(), mask) == 0);
    CHECK(base::affinity_mask() == one);
    CHECK(base::find_usable_cores().mask == one);
    CHECK(base::usable_cores() == 1);
    CHECK((base::allowed_processors() & before) == before);
  }).join();
  CHECK(base::kernel_mask({}).empty());
}

TEST_CASE("a quota of version 2") {
  const Root root;
  CHECK_FALSE(base::read_cpu_quota(root.path()));
  make_unified(root, "/job/step");
  CHECK_FALSE(base::read_cpu_quota(root.path()));
  const std::string job = "/sys/fs/cgroup/job/cpu.max", step = "/sys/fs/cgroup/job/step/cpu.max";
  root.write(step, "max 100000\n");
  CHECK_FALSE(base::read_cpu_quota(root.path()));
  root.write(step, "150000 100000\n");
  CHECK(processors(root) == 1.5);
  CHECK(base::read_cpu_quota(root.path())->file == step);
  // The smallest of the group and its ancestors counts.
  root.write(job, "50000 50000\n");
  CHECK(processors(root) == 1);
  CHECK(base::read_cpu_quota(root.path())->file == job);
  root.write("/sys/fs/cgroup/cpu.max", "25000 50000\n");
  CHECK(processors(root) == 0.5);
  for (const char* bad : {"", "x 1", "5", "5 0", "0 5", "-1 5"}) {
    INFO(bad);
    root.write("/sys/fs/cgroup/cpu.max", bad);
    CHECK(processors(root) == 1);
  }
}

TEST_CASE("a quota of version 1") {
  const Root root;
  root.write("/proc/self/cgroup",
             "5:cpuset:/\n4:cpu,cpuacct:/docker/a b\n1:name=systemd:/x\n0::/other\n");
  root.write(
      "/proc/self/mountinfo",
      "30 22 0:25 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "31 22 0:26 / /sys/fs/cgroup/cpu\\040one rw master:3 - cgroup cgroup rw,cpuacct,cpu\n");
  const std::string folder = "/sys/fs/cgroup/cpu one";
  root.write(folder + "/docker/a b/cpu.cfs_quota_us", "-1\n");
  root.write(folder + "/docker/a b/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(base::read_cpu_quota(root.path()));
  root.write(folder + "/docker/a b/cpu.cfs_quota_us", "250000\n");
  CHECK(processors(root) == 2.5);
  root.write(folder + "/docker/cpu.cfs_quota_us", "100000\n");
  CHECK(processors(root) == 2.5);  // without a period it is no quota
  root.write(folder + "/docker/cpu.cfs_period_us", "100000\n");
  CHECK(processors(root) == 1);
  CHECK(base::read_cpu_quota(root.path())->file == folder + "/docker/cpu.cfs_quota_us");
}

TEST_CASE("a container that sees a part of the hierarchy") {
  const Root root;
  // Without a namespace the group begins with what is mounted; with one it is its root.
  for (const char* group : {"/pods/one/inner", "/pods/one", "/", "/../other", "/pods/ones"}) {
    INFO(group);
    root.write("/proc/self/cgroup", std::string("0::") + group + "\n");
    root.write("/proc/self/mountinfo",
               "31 22 0:27 /pods/one /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    root.write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    root.write("/sys/fs/cgroup/inner/cpu.max", "100000 100000\n");
    CHECK(processors(root) == (std::string(group) == "/pods/one/inner" ? 1 : 2));
  }
}

TEST_CASE("processes that share a quota know it, others do not") {
  const Root root;
  make_unified(root, "/job/a");
  root.write("/sys/fs/cgroup/job/cpu.max", "200000 100000\n");
  const auto group = [&] { return base::read_cpu_quota(root.path())->group; };
  const std::uint64_t first = group();
  make_unified(root, "/job/b");
  CHECK(group() == first);
  root.write("/sys/fs/cgroup/job/b/cpu.max", "100000 100000\n");
  CHECK(group() != first);
}

TEST_CASE("the smaller of mask and quota counts, rounded up") {
  base::UsableCores cores;
  cores.mask = *base::parse_processors("0-3");
  CHECK(cores.count() == 4);
  CHECK(base::describe_quota_risk(cores).empty());
  const auto with = [&](double processors) {
    cores.quota = base::CpuQuota{processors, "/sys/fs/cgroup/job/cpu.max", 1};
    return cores.count();
  };
  CHECK(with(1.5) == 2);
  CHECK(with(0.1) == 1);
  CHECK(with(2) == 2);
  CHECK(cores.quota_is_smaller());
  CHECK_THAT(base::describe_quota_risk(cores),
             Contains("the CPU quota of /sys/fs/cgroup/job/cpu.max is 2.00 cores") &&
                 Contains("the 4 of the affinity mask") && Contains("RONDO_WAIT=sleep") &&
                 Contains("as many CPUs as it has ranks"));
  CHECK(with(3.5) == 4);
  CHECK(cores.quota_is_smaller());
  CHECK(with(4) == 4);
  CHECK_FALSE(cores.quota_is_smaller());
  CHECK(with(1e300) == 4);
  cores.mask.reset();
  cores.quota.reset();
  CHECK(cores.count() == 1);
}

TEST_CASE("the processors of a container's cpuset, not those of this thread alone") {
  const Root root;
  const base::ProcessorSet mine = base::affinity_mask();
  const auto allowed = [&] {
    return base::describe_processors(base::allowed_processors(root.path()) & ~mine);
  };
  root.write("/sys/devices/system/cpu/online", "0-4099\n");
  const auto but_mine = [&](std::string_view text) {
    return base::describe_processors(*base::parse_processors(text) & ~mine);
  };
  CHECK(allowed() == but_mine("0-4099"));
  make_unified(root, "/job");
  root.write("/sys/fs/cgroup/job/cpuset.cpus.effective", "4000-4003,4200\n");
  CHECK(allowed() == "4000-4003");
  root.write("/proc/self/cgroup", "3:cpuset:/old\n0::/job\n");
  root.write(
      "/proc/self/mountinfo",
      std::string(unified_mounts) + "30 22 0:25 / /sys/fs/cpuset rw - cgroup cgroup rw,cpuset\n");
  root.write("/sys/fs/cpuset/old/cpuset.effective_cpus", "4002-4010\n");
  CHECK(allowed() == "4002-4003");
}

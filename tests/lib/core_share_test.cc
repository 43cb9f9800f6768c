// SPDX-License-Identifier: Apache-2.0
#include "lib/core_share.h"

#include <sched.h>

#include "environment_guard.h"
#include "lib/record.h"
#include "lib/settings/launcher.h"
#include "lib/split.h"
#include "support/ranks.h"

using namespace rondo;
using Catch::Contains;
using rondo::testing::expect;
using rondo::testing::run_ranks;
using rondo::tests::Environment;

namespace {

constexpr int many = 10'000;  // more ranks than any machine has processors

base::ProcessorSet set(std::string_view text) {
  return *base::parse_processors(text);
}

// A rank on a host with processors 0 to 15.
lib::CoreShare bound_to(std::string_view mask, int ranks_on_host = 0) {
  return {set(mask), set("0-15"), 0, 0, ranks_on_host};
}
lib::CoreShare with_quota(int quota, std::uint64_t group, int ranks_on_host = 0) {
  return {set("0-15"), set("0-15"), quota, group, ranks_on_host};
}

// "2 cores, 4 ranks, crowded"
std::string summary(const std::vector<lib::CoreShare>& shares) {
  const lib::HostCores cores = lib::cores_of_host(shares);
  return std::to_string(cores.cores) + " cores, " + std::to_string(cores.ranks) + " ranks" +
         (cores.crowded() ? ", crowded" : "") + (cores.short_of_quota ? ", short of quota" : "");
}

void bind_this_thread(std::size_t processor) {
  base::ProcessorSet one;
  one.set(processor);
  const auto words = base::kernel_mask(one);
  expect(::sched_setaffinity(0, words.size() * sizeof words.front(),
                             reinterpret_cast<const cpu_set_t*>(words.data())) == 0,
         "sched_setaffinity");
}

// Up to two processors of this process.
std::vector<std::size_t> two_processors() {
  const base::ProcessorSet mask = base::affinity_mask();
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < base::most_processors && found.size() < 2; ++i)
    if (mask[i]) found.push_back(i);
  return found;
}

}  // namespace

TEST_CASE("the cores of a host are those that any of its ranks may use") {
  CHECK(summary({bound_to("0"), bound_to("1")}) == "2 cores, 2 ranks");
  CHECK(summary({bound_to("0"), bound_to("0")}) == "1 cores, 2 ranks, crowded");
  CHECK(summary({bound_to("0-1"), bound_to("0-1")}) == "2 cores, 2 ranks");
  CHECK(summary({bound_to("0-1"), bound_to("1"), bound_to("0")}) == "2 cores, 3 ranks, crowded");
  CHECK(summary({bound_to("0-1"), bound_to("2-3"), bound_to("2-3")}) == "4 cores, 3 ranks");
  CHECK(summary({lib::CoreShare{}}) == "1 cores, 1 ranks");
}

TEST_CASE("ranks of other communicators count, on the cores of the host") {
  // The largest number that a rank knows.
  CHECK(summary({bound_to("0-15"), bound_to("0-15", 17)}) == "16 cores, 17 ranks, crowded");
  CHECK(summary({bound_to("0-15", 16), bound_to("0-15")}) == "16 cores, 16 ranks");
  // They may be bound to other cores than these two.
  CHECK(summary({bound_to("0", 16), bound_to("1", 16)}) == "2 cores, 16 ranks");
  CHECK(summary({bound_to("0", 17), bound_to("1", 17)}) == "2 cores, 17 ranks, crowded");
  CHECK(lib::cores_of_host(std::vector{bound_to("0", 16)}).processors == set("0-15"));
  // No other ranks are there, so only the core that these ranks share counts.
  CHECK(summary({bound_to("0", 2), bound_to("0", 2)}) == "1 cores, 2 ranks, crowded");
  CHECK(lib::cores_of_host(std::vector{bound_to("0-1", 1)}).processors == set("0-1"));
}

TEST_CASE("quotas limit the cores: once for ranks that share one, each for the others") {
  CHECK(summary({with_quota(2000, 7), with_quota(2000, 7)}) == "2 cores, 2 ranks");
  CHECK(summary({with_quota(1000, 7), with_quota(1000, 7)}) ==
        "1 cores, 2 ranks, crowded, short of quota");
  CHECK(summary({with_quota(1000, 7), with_quota(1000, 8)}) == "2 cores, 2 ranks");
  CHECK(summary({with_quota(500, 7), with_quota(500, 8)}) ==
        "1 cores, 2 ranks, crowded, short of quota");
  CHECK(summary({with_quota(1500, 7), with_quota(1500, 7)}) == "2 cores, 2 ranks, short of quota");
  CHECK(summary({with_quota(1000, 7), with_quota(0, 0)}) == "16 cores, 2 ranks");
  CHECK(summary({with_quota(99'000, 7), with_quota(99'000, 7)}) == "16 cores, 2 ranks");
  CHECK(summary({with_quota(3000, 7, 4), with_quota(3000, 7, 4)}) ==
        "3 cores, 4 ranks, crowded, short of quota");
  CHECK(summary({with_quota(4000, 7, 4), with_quota(4000, 7, 4)}) == "4 cores, 4 ranks");
  // More ranks than processors spin on all of these at most.
  CHECK(summary({with_quota(16'000, 7, 99)}) == "16 cores, 99 ranks, crowded");
  // Ranks that are bound to a core each spin on several cores together.
  lib::CoreShare first = bound_to("0"), second = bound_to("1");
  first.quota = second.quota = 1000;
  CHECK(summary({first, second}) == "1 cores, 2 ranks, crowded, short of quota");
}

TEST_CASE("a share arrives as it was sent, and nothing else is taken for one") {
  const lib::CoreShare share{set("0,63-64,8191"), set("5"), 3, 0x1234567890abcdef, 77};
  base::Writer writer;
  lib::put_core_share(writer, share);
  const transports::Blob bytes = writer.take();
  base::Reader reader(bytes);
  const lib::CoreShare got = lib::get_core_share(reader);
  CHECK((reader.ok() && reader.left() == 0));
  CHECK(got.mask == share.mask);
  CHECK(got.host == share.host);
  CHECK(got.quota == 3);
  CHECK(got.quota_group == share.quota_group);
  CHECK(got.ranks_on_host == 77);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    base::Reader cut{std::span(bytes).first(length)};
    lib::get_core_share(cut);
    CHECK_FALSE(cut.ok());
  }
  // More words than there are processors.
  transports::Blob large(16384);
  large[0] = std::byte{129};
  base::Reader too_many(large);
  lib::get_core_share(too_many);
  CHECK_FALSE(too_many.ok());
  large[0] = std::byte{128};
  for (std::size_t i = 0; i < 4; ++i) large[2 + 128 * 8 + 2 + i] = std::byte{0xff};
  for (std::size_t i = 0; i < 4; ++i) large[2 + 128 * 8 + 2 + 4 + 8 + i] = std::byte{0xff};
  base::Reader huge(large);
  const lib::CoreShare most = lib::get_core_share(huge);
  CHECK(huge.ok());
  CHECK((most.quota > 0 && most.ranks_on_host > 0));
}

TEST_CASE("options come before the variable, and that before the launcher") {
  const Environment environment{};
  CHECK(lib::find_core_share({}).ranks_on_host == 0);
  ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "5", 1);
  CHECK(lib::find_core_share({}).ranks_on_host == 5);
  ::setenv("RONDO_LOCAL_SIZE", "6", 1);
  CHECK(lib::find_core_share({}).ranks_on_host == 6);
  ::setenv("RONDO_RANKS_ON_HOST", "7", 1);
  CHECK(lib::find_core_share(settings::with_environment({})).ranks_on_host == 7);
  Options options;
  options.ranks_on_host = 9;
  CHECK(lib::find_core_share(settings::with_environment(options)).ranks_on_host == 9);
  const lib::CoreShare share = lib::find_core_share({});
  CHECK(share.mask == base::affinity_mask());
  CHECK((share.mask & ~share.host).none());
  ::setenv("RONDO_LOCAL_SIZE", "0", 1);
  CHECK_THROWS_WITH(lib::find_core_share({}), Contains("RONDO_LOCAL_SIZE is '0'"));
  ::setenv("RONDO_RANKS_ON_HOST", "many", 1);
  CHECK_THROWS_WITH(settings::with_environment({}), Contains("RONDO_RANKS_ON_HOST is 'many'"));
  options.ranks_on_host = -1;
  options.rank = 0;
  options.size = 1;
  CHECK_THROWS_WITH(Communicator::connect(options), Contains("ranks_on_host is -1"));
}

TEST_CASE("how many ranks each launcher has started on this host") {
  using Variables = std::initializer_list<std::pair<const char*, const char*>>;
  const auto told = [](Variables variables) {
    const Environment environment(variables);
    return settings::ranks_on_host_from_launcher();
  };
  CHECK(told({}) == 0);
  CHECK(told({{"RANK", "0"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}}) == 4);
  CHECK(told({{"RANK", "0"}, {"WORLD_SIZE", "8"}}) == 0);
  CHECK(told({{"LOCAL_WORLD_SIZE", "4"}}) == 0);
  CHECK(told({{"PMI_RANK", "0"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "3"}}) == 3);
  CHECK(told({{"RANK", "9"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}}) == 0);
  const auto slurm = [&](const char* tasks, const char* node) {
    return told({{"SLURM_PROCID", "0"},
                 {"SLURM_NTASKS", "11"},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_STEP_NUM_NODES", "3"},
                 {"SLURM_STEP_NODELIST", "n[1-3]"},
                 {"SLURM_STEP_TASKS_PER_NODE", tasks},
                 {"SLURM_NODEID", node}});
  };
  CHECK(slurm("4(x2),3", "0") == 4);
  CHECK(slurm("4(x2),3", "1") == 4);
  CHECK(slurm("4(x2),3", "2") == 3);
  CHECK(slurm("4(x2),3", "3") == 0);
  CHECK(slurm("11", "0") == 11);
  for (const char* bad : {"", "x", "4(x", "4(x)", "4(x0)", "4(x2", "-1", "4(2)", "99999999999"}) {
    INFO(bad);
    CHECK(slurm(bad, "0") == 0);
  }
}

TEST_CASE("ranks that are bound to a core each are not crowded, ranks on one core are") {
  const Environment environment{};
  const auto processors = two_processors();
  testing::MemoryStore store, second;
  const auto connect = [&](Store& meeting, int rank, std::size_t processor) {
    bind_this_thread(processor);
    Options options = testing::Setup::quick_options();
    options.rank = rank;
    options.size = 2;
    options.store = &meeting;
    return lib::CommunicatorState(options, lib::default_transports()).host_cores();
  };
  run_ranks(2, "bound ranks", [&](int rank) {
    const auto own =
        connect(store, rank, processors[static_cast<std::size_t>(rank) % processors.size()]);
    expect(own.cores == static_cast<int>(processors.size()), "cores of two masks");
    expect(own.crowded() == (processors.size() < 2), "crowded with a core each");
    expect(own.ranks == 2, "ranks");
    expect(connect(second, rank, processors.front()).crowded(), "not crowded on one core");
  });
}

TEST_CASE("a split knows the ranks that it leaves out, and where they run") {
  const Environment environment{};
  const auto processors = two_processors();
  testing::MemoryStore store;
  // Ranks 0 and 2 on one core, 1 and 3 on another one: four ranks share two.
  run_ranks(4, "split", [&](int rank) {
    bind_this_thread(processors[static_cast<std::size_t>(rank) % processors.size()]);
    Options options = testing::Setup::quick_options();
    options.rank = rank;
    options.size = 4;
    options.store = &store;
    lib::CommunicatorState parent(options, lib::default_transports());
    expect(parent.host_cores().crowded(), "the parent");
    // Ranks 0 and 1, and ranks 2 and 3: a core each, which ranks of the other group use too.
    const auto half = lib::split(parent, rank / 2, 0, 1);
    expect(half->host_cores().cores == static_cast<int>(processors.size()), "cores of the half");
    expect(half->host_cores().ranks == 4, "ranks of the parent");
    expect(half->host_cores().crowded(), "the half");
    const auto alone = lib::split(*half, rank, 0, 1);
    expect(alone->size() == 1, "one rank alone");
  });
}

TEST_CASE("options of one rank tell all ranks of its host") {
  const Environment environment{};
  testing::MemoryStore store;
  run_ranks(2, "told", [&](int rank) {
    Options options = testing::Setup::quick_options();
    options.rank = rank;
    options.size = 2;
    options.store = &store;
    options.ranks_on_host = rank == 1 ? many : 0;
    const lib::CommunicatorState state(options, lib::default_transports());
    expect(state.host_cores().ranks == many, "the largest number");
    expect(state.host_cores().crowded(), "more ranks than cores");
  });
}

TEST_CASE("the planner's cores are those of the host with the most ranks") {
  std::vector<lib::Record> records(3);
  for (std::size_t i = 0; i < records.size(); ++i) records[i].host = i == 0 ? "a" : "b";
  records[0].cores = bound_to("0-7");
  records[1].cores = bound_to("0");
  records[2].cores = bound_to("1-2");
  CHECK(lib::cores_of(records, lib::group_by_host(records)) == 3);
}

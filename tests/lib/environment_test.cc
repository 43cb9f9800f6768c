// SPDX-License-Identifier: Apache-2.0
#include "lib/environment.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <utility>

#include "catch.h"
#include "lib/launcher.h"
#include "lib/user_directory.h"
#include "ranks.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

namespace {

constexpr const char* known[] = {"RONDO_RANK",
                                 "RONDO_SIZE",
                                 "RONDO_RENDEZVOUS",
                                 "RONDO_SECRET",
                                 "RONDO_SECRET_FILE",
                                 "RONDO_DEADLINE",
                                 "RONDO_CONNECT_DEADLINE",
                                 "RONDO_TRANSPORT",
                                 "RONDO_INTERFACE",
                                 "RONDO_PORT_RANGE",
                                 "RONDO_ALGORITHM",
                                 "RONDO_SEGMENT_BYTES",
                                 "RONDO_DEPTH",
                                 "RONDO_STAGING_BYTES",
                                 "RONDO_REPRODUCIBLE",
                                 "RONDO_CHECKSUM",
                                 "RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE",
                                 "MASTER_ADDR",
                                 "MASTER_PORT",
                                 "TORCHELASTIC_USE_AGENT_STORE",
                                 "OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_SIZE",
                                 "PMIX_NAMESPACE",
                                 "OMPI_MCA_ess_base_jobid",
                                 "OMPI_MCA_orte_precondition_transports",
                                 "PMI_RANK",
                                 "PMI_SIZE",
                                 "MPI_LOCALNRANKS",
                                 "SLURM_PROCID",
                                 "SLURM_NTASKS",
                                 "SLURM_STEP_NUM_TASKS",
                                 "SLURM_STEP_NODELIST",
                                 "SLURM_STEP_NUM_NODES",
                                 "SLURM_JOB_ID",
                                 "SLURM_STEP_ID",
                                 "XDG_RUNTIME_DIR"};

// Exactly these variables of those that matter, until the object goes.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const char* name : known) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(name);
    }
    ::setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }
  const std::string& directory() const noexcept { return directory_.path(); }

 private:
  Directory directory_;
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

std::string user_prefix(const Environment& environment) {
  return "file://" + environment.directory() + "/rondo-" + std::to_string(::geteuid()) + "/job-";
}

std::string message_of(Errc code, const Options& options = {}) {
  try {
    resolve_place(options);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "no error";
}

std::string reading_message() {
  try {
    Options::from_environment();
  } catch (const Error& error) {
    CHECK(error.code() == Errc::invalid_argument);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("every variable of Rondo reaches its option", "[environment]") {
  const Environment environment{{"RONDO_RANK", "3"},
                                {"RONDO_SIZE", "8"},
                                {"RONDO_RENDEZVOUS", "tcp://node0:29500"},
                                {"RONDO_SECRET", "hush"},
                                {"RONDO_DEADLINE", "0.25"},
                                {"RONDO_CONNECT_DEADLINE", "90"},
                                {"RONDO_TRANSPORT", "shm, tcp"},
                                {"RONDO_INTERFACE", "eth0,^docker0,10.0.0.0/8"},
                                {"RONDO_PORT_RANGE", "42000-42099"},
                                {"RONDO_ALGORITHM", "ring"},
                                {"RONDO_SEGMENT_BYTES", "256K"},
                                {"RONDO_DEPTH", "4"},
                                {"RONDO_STAGING_BYTES", "32MiB"},
                                {"RONDO_REPRODUCIBLE", "yes"},
                                {"RONDO_CHECKSUM", "1"}};
  const Options options = Options::from_environment();
  CHECK(options.rank == 3);
  CHECK(options.size == 8);
  CHECK(options.rendezvous == "tcp://node0:29500");
  CHECK(options.secret == "hush");
  CHECK(options.deadline == milliseconds{250});
  CHECK(options.connect_deadline == milliseconds{90'000});
  CHECK(options.transports == std::vector<std::string>{"shm", "tcp"});
  CHECK(options.interfaces == std::vector<std::string>{"eth0", "^docker0", "10.0.0.0/8"});
  CHECK(options.port_first == 42000);
  CHECK(options.port_last == 42099);
  CHECK(options.algorithm == "ring");
  CHECK(options.segment_bytes == std::size_t{256} << 10);
  CHECK(options.depth == 4);
  CHECK(options.staging_bytes == std::size_t{32} << 20);
  CHECK(options.reproducible);
  CHECK(options.checksum);

  const Place place = resolve_place(options);
  CHECK(place.rank == 3);
  CHECK(place.size == 8);
  CHECK(place.url == "tcp://node0:29500");
  CHECK(place.secret == "hush");
  CHECK_FALSE(place.this_host_only);
  CHECK(place.source == "RONDO_RANK");
}

TEST_CASE("without variables the options are those of the header", "[environment]") {
  const Environment environment{{"RONDO_DEADLINE", ""}, {"RONDO_RANK", " "}};
  const Options options = Options::from_environment(), plain;
  CHECK(options.rank == -1);
  CHECK(options.size == 0);
  CHECK(options.rendezvous == plain.rendezvous);
  CHECK(options.deadline == plain.deadline);
  CHECK(options.staging_bytes == plain.staging_bytes);
  const Place place = resolve_place(options);
  CHECK(place.rank == 0);
  CHECK(place.size == 1);
  CHECK(place.url == "");
  CHECK(place.source == "alone");
}

TEST_CASE("bad values are named with what is possible", "[environment]") {
  const struct {
    const char *name, *value, *possible;
  } cases[] = {{"RONDO_RANK", "-1", "whole number from 0"},
               {"RONDO_RANK", "two", "whole number from 0"},
               {"RONDO_SIZE", "0", "whole number from 1"},
               {"RONDO_SIZE", "99999999999", "to 2147483647"},
               {"RONDO_RENDEZVOUS", "http://x", "tcp://HOST:PORT"},
               {"RONDO_DEADLINE", "0", "from 0.001"},
               {"RONDO_DEADLINE", "5s", "for instance 30 or 0.5"},
               {"RONDO_DEADLINE", "nan", "seconds"},
               {"RONDO_CONNECT_DEADLINE", "1e99", "seconds"},
               {"RONDO_TRANSPORT", " , ", "commas"},
               {"RONDO_PORT_RANGE", "100-50", "FIRST-LAST"},
               {"RONDO_PORT_RANGE", "0-50", "FIRST-LAST"},
               {"RONDO_PORT_RANGE", "1-70000", "FIRST-LAST"},
               {"RONDO_PORT_RANGE", "-", "FIRST-LAST"},
               {"RONDO_SEGMENT_BYTES", "K", "256K"},
               {"RONDO_SEGMENT_BYTES", "12Q", "256K"},
               {"RONDO_SEGMENT_BYTES", "-4", "256K"},
               {"RONDO_STAGING_BYTES", "99999999999G", "256K"},
               {"RONDO_DEPTH", "0", "from 1 to 1024"},
               {"RONDO_REPRODUCIBLE", "maybe", "true"},
               {"RONDO_CHECKSUM", "2", "true"},
               {"RONDO_SECRET_FILE", "/does/not/exist", "cannot be opened"}};
  for (const auto& one : cases) {
    const Environment environment{{one.name, one.value}};
    INFO(one.name << "=" << one.value);
    CHECK_THAT(reading_message(), Contains(one.name) && Contains(one.possible));
  }
}

TEST_CASE("sizes, times and switches are read as people write them", "[environment]") {
  const Environment environment{{"A", "1"}, {"RONDO_CHECKSUM", "off"}};
  const std::pair<const char*, std::size_t> sizes[] = {
      {"1", 1},         {"4096", 4096},     {"4k", 4096},       {"4KB", 4096}, {"4KiB", 4096},
      {"2M", 2u << 20}, {"1g", 1ull << 30}, {"1T", 1ull << 40}, {"17B", 17}};
  for (const auto& [text, bytes] : sizes) {
    ::setenv("RONDO_SEGMENT_BYTES", text, 1);
    CHECK(bytes_variable("RONDO_SEGMENT_BYTES") == bytes);
  }
  ::setenv("RONDO_DEADLINE", "1.5", 1);
  CHECK(seconds_variable("RONDO_DEADLINE") == milliseconds{1500});
  CHECK(switch_variable("RONDO_CHECKSUM") == false);
}

TEST_CASE("a secret may stand in a file", "[environment]") {
  Environment environment{};
  const std::string path = environment.directory() + "/secret";
  std::ofstream(path) << "from a file\n";
  ::chmod(path.c_str(), 0600);
  ::setenv("RONDO_SECRET_FILE", path.c_str(), 1);
  CHECK(secret_from_environment() == "from a file");
  ::setenv("RONDO_SECRET", "both", 1);
  CHECK_THAT(reading_message(), Contains("only one of them"));
  ::unsetenv("RONDO_SECRET");
  std::ofstream(path, std::ios::trunc) << "\n";
  CHECK_THAT(reading_message(), Contains("empty"));
  std::ofstream(path, std::ios::trunc) << std::string(5000, 'x');
  CHECK_THAT(reading_message(), Contains("at most 4096"));
}

TEST_CASE("torchrun", "[environment]") {
  const Environment environment{{"RANK", "5"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"},
                                {"MASTER_ADDR", "node0"},
                                {"MASTER_PORT", "29500"},
                                {"LOCAL_WORLD_SIZE", "8"}};
  Place place = resolve_place(Options{});
  CHECK(place.rank == 5);
  CHECK(place.size == 8);
  CHECK(place.url == "tcp://node0:29500");
  CHECK(place.source == "torchrun");
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  CHECK(resolve_place(Options{}).url == "tcp://node0:29501");
  ::setenv("MASTER_ADDR", "fd00::2", 1);
  CHECK(resolve_place(Options{}).url == "tcp://[fd00::2]:29501");
  ::setenv("LOCAL_WORLD_SIZE", "4", 1);
  CHECK_THAT(message_of(Errc::authentication), Contains("several hosts") && Contains("RONDO_SECRET"));
  ::setenv("RONDO_SECRET", "s", 1);
  CHECK(resolve_place(Options{}).url == "tcp://[fd00::2]:29501");
  ::unsetenv("MASTER_PORT");
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("MASTER_PORT is not"));
  ::setenv("RANK", "8", 1);
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("RANK is '8'") && Contains("from 0 to 7"));
}

TEST_CASE("Open MPI on one host needs no configuration", "[environment]") {
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                {"PMIX_NAMESPACE", "prterun-vm-71@1/x"}};
  const Place place = resolve_place(Options{});
  CHECK(place.rank == 1);
  CHECK(place.size == 4);
  CHECK(place.source == "Open MPI");
  CHECK(place.url == user_prefix(environment) + "openmpi-prterun-vm-71_1_x-4");
  CHECK(place.this_host_only);
  CHECK(place.secret.size() == 64);
  CHECK(resolve_place(Options{}).secret == place.secret);
  ::setenv("PMIX_NAMESPACE", "another", 1);
  CHECK(resolve_place(Options{}).secret != place.secret);
  ::setenv("RONDO_SECRET", "mine", 1);
  CHECK(resolve_place(Options{}).secret == "mine");
  CHECK_FALSE(resolve_place(Options{}).this_host_only);

  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("Open MPI runs ranks on several hosts") &&
                                                     Contains("RONDO_RENDEZVOUS=tcp://HOST:PORT") &&
                                                     Contains("-x RONDO_SECRET"));
  ::setenv("RONDO_RENDEZVOUS", "tcp://node0:1234", 1);
  CHECK(resolve_place(Options{}).url == "tcp://node0:1234");
}

TEST_CASE("MPICH and Intel MPI on one host need no configuration", "[environment]") {
  const Environment environment{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}};
  const Place place = resolve_place(Options{});
  CHECK(place.rank == 2);
  CHECK(place.size == 3);
  CHECK(place.source == "MPICH or Intel MPI");
  CHECK_THAT(place.url, Catch::StartsWith(user_prefix(environment) + "hydra-"));
  CHECK(resolve_place(Options{}).url == place.url);
  CHECK(place.this_host_only);
  ::setenv("MPI_LOCALNRANKS", "1", 1);
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("-genvlist"));
  ::unsetenv("MPI_LOCALNRANKS");
  CHECK(resolve_place(Options{}).rank == 2);
}

TEST_CASE("Slurm", "[environment]") {
  const Environment environment{{"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},
                                {"SLURM_STEP_NODELIST", "n7"}, {"SLURM_STEP_NUM_NODES", "1"},
                                {"SLURM_JOB_ID", "4711"},      {"SLURM_STEP_ID", "3"}};
  CHECK(resolve_place(Options{}).url == user_prefix(environment) + "slurm-4711-3-2");
  CHECK(resolve_place(Options{}).source == "Slurm");
  // srun for an MPI program that speaks PMI.
  ::setenv("PMI_RANK", "0", 1);
  ::setenv("PMI_SIZE", "9", 1);
  CHECK(resolve_place(Options{}).source == "Slurm");
  // Hydra that has started its daemons with srun.
  ::setenv("MPI_LOCALNRANKS", "9", 1);
  CHECK(resolve_place(Options{}).source == "MPICH or Intel MPI");
  ::unsetenv("PMI_RANK");

  ::setenv("SLURM_STEP_NODELIST", "node[007-009,12],other", 1);
  ::setenv("SLURM_STEP_NUM_NODES", "5", 1);
  CHECK_THAT(message_of(Errc::authentication), Contains("RONDO_SECRET"));
  ::setenv("RONDO_SECRET", "s", 1);
  const std::string url = resolve_place(Options{}).url;
  CHECK_THAT(url, Catch::StartsWith("tcp://node007:"));
  CHECK(resolve_place(Options{}).url == url);
  ::setenv("SLURM_STEP_ID", "4", 1);
  CHECK(resolve_place(Options{}).url != url);

  // A batch script itself is no task.
  ::unsetenv("SLURM_STEP_NODELIST");
  ::unsetenv("SLURM_STEP_ID");
  CHECK(resolve_place(Options{}).source == "alone");
}

TEST_CASE("host lists", "[environment]") {
  CHECK(first_host("n1") == "n1");
  CHECK(first_host("n1,n2") == "n1");
  CHECK(first_host("n[1-4]") == "n1");
  CHECK(first_host("n[01,03-4],m") == "n01");
  CHECK(first_host("rack[2-3]node[7-9]") == "rack2node7");
  CHECK(first_host("broken[1") == "broken");
}

TEST_CASE("options come before Rondo's variables, those before the launcher's", "[environment]") {
  const Environment environment{{"RANK", "1"},        {"WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "a"}, {"MASTER_PORT", "100"},
                                {"RONDO_RANK", "2"},  {"RONDO_RENDEZVOUS", "tcp://b:200"},
                                {"RONDO_SECRET", "s"}};
  Options options;
  Place place = resolve_place(options);
  CHECK(place.rank == 2);
  CHECK(place.size == 4);
  CHECK(place.url == "tcp://b:200");
  options.rank = 3;
  options.rendezvous = "tcp://c:300";
  options.secret = "t";
  place = resolve_place(options);
  CHECK(place.rank == 3);
  CHECK(place.url == "tcp://c:300");
  CHECK(place.secret == "t");
  CHECK(place.source == "options");
  options.rank = 4;
  CHECK_THAT(message_of(Errc::invalid_argument, options), Contains("ranks go from 0 to 3"));
}

TEST_CASE("half a place is no place", "[environment]") {
  const Environment environment{};
  Options options;
  options.rank = 1;
  CHECK_THAT(message_of(Errc::invalid_argument, options), Contains("RONDO_SIZE"));
  options.size = 2;
  CHECK_THAT(message_of(Errc::invalid_argument, options), Contains("set RONDO_RENDEZVOUS=tcp://HOST:PORT"));
  options.rank = -1;
  CHECK_THAT(message_of(Errc::invalid_argument, options), Contains("RONDO_RANK"));
  options.rank = -2;
  CHECK_THAT(message_of(Errc::invalid_argument, options), Contains("Options::rank is -2"));
  options = {};
  options.size = -1;
  CHECK_THAT(message_of(Errc::invalid_argument, options), Contains("Options::size is -1"));
  MapStore store;
  options = {};
  options.rank = 0;
  options.size = 2;
  options.store = &store;
  CHECK(resolve_place(options).url == "");
}

TEST_CASE("ranks of one user meet without configuration", "[environment][rendezvous]") {
  const Environment environment{
      {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"PMIX_NAMESPACE", "77"}};
  std::vector<Place> places;
  for (const char* rank : {"0", "1", "2"}) {
    ::setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    places.push_back(resolve_place(Options{}));
  }
  CHECK(what_is_wrong(join_all(places)) == "");
  // The key stays, the job's file does not.
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(user_directory()))
    files.push_back(entry.path().filename());
  CHECK(files == std::vector<std::string>{"key"});
}

TEST_CASE("the user's directory must be the user's alone", "[environment]") {
  const Environment environment{};
  const std::string path = environment.directory() + "/rondo-" + std::to_string(::geteuid());
  CHECK(user_directory() == path);
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);

  ::chmod(path.c_str(), 0755);
  CHECK_THROWS_WITH(user_directory(), Contains("others may enter it") && Contains("RONDO_RENDEZVOUS"));
  std::filesystem::remove_all(path);
  std::filesystem::create_directory_symlink(environment.directory(), path);
  CHECK_THROWS_WITH(user_directory(), Contains("not a directory"));
  std::filesystem::remove(path);

  const std::string secret = user_secret("a");
  CHECK(user_secret("a") == secret);
  CHECK(user_secret("b") != secret);
  ::chmod((path + "/key").c_str(), 0644);
  CHECK_THROWS_WITH(user_secret("a"), Contains("open to others"));
  std::filesystem::remove(path + "/key");
  CHECK(user_secret("a") != secret);
}

TEST_CASE("processes that come at once agree on the user's key", "[environment]") {
  const Environment environment{};
  std::vector<std::future<std::string>> futures;
  for (int i = 0; i < 8; ++i)
    futures.push_back(std::async(std::launch::async, [] { return user_secret("x"); }));
  const std::string first = futures.front().get();
  for (std::size_t i = 1; i < futures.size(); ++i) CHECK(futures[i].get() == first);
}

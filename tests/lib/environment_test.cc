// SPDX-License-Identifier: Apache-2.0
#include "lib/settings/environment.h"

#include <sys/stat.h>

#include <fstream>

#include "environment_guard.h"
#include "lib/rendezvous/user_directory.h"
#include "lib/settings/settings.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

TEST_CASE("RONDO_INTEGRITY and Options::integrity say what is protected between hosts") {
  Options options;
  options.rank = 0;
  options.size = 2;
  options.rendezvous = "tcp://127.0.0.1:1";
  const auto wanted = [&] { return settings::protection_of(options); };
  {
    const Environment environment{};
    CHECK(wanted() == base::Protection::headers);
  }
  {
    const Environment environment{{"RONDO_INTEGRITY", "payload"}};
    CHECK(wanted() == base::Protection::payload);
  }
  {
    const Environment environment{{"RONDO_INTEGRITY", "all"}};
    CHECK_THROWS_WITH(wanted(),
                      Catch::Contains("RONDO_INTEGRITY is 'all': it must be headers or payload"));
  }
  // The value that the program sets comes first.
  const Environment environment{{"RONDO_INTEGRITY", "payload"}};
  options.integrity = "headers";
  CHECK(wanted() == base::Protection::headers);
  options.integrity = "none";
  CHECK_THROWS_WITH(wanted(), Catch::Contains("Options::integrity is 'none'"));
}

TEST_CASE("RONDO_WAIT and Options::wait say how a rank waits", "[environment]") {
  Options options;
  const auto wanted = [&] { return settings::wait_mode_of(options); };
  {
    const Environment environment{};
    CHECK(wanted() == engine::WaitMode::automatic);
  }
  {
    const Environment environment{{"RONDO_WAIT", "spin"}};
    CHECK(wanted() == engine::WaitMode::spin);
  }
  {
    const Environment environment{{"RONDO_WAIT", "yield"}};
    CHECK_THROWS_WITH(wanted(), Contains("RONDO_WAIT is 'yield': it must be auto, spin or sleep"));
    CHECK_THROWS_WITH(Options::from_environment(), Contains("RONDO_WAIT is 'yield'"));
  }
  // The value that the program sets comes first.
  const Environment environment{{"RONDO_WAIT", "spin"}};
  options.wait = "sleep";
  CHECK(wanted() == engine::WaitMode::sleep);
  options.wait = "never";
  CHECK_THROWS_WITH(wanted(), Contains("Options::wait is 'never'"));
}

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
                                {"RONDO_HOST", "rack 4"},
                                {"RONDO_SEGMENT_BYTES", "256K"},
                                {"RONDO_DEPTH", "4"},
                                {"RONDO_CONNECTIONS", "3"},
                                {"RONDO_CONSTANTS", "/etc/rondo.json"},
                                {"RONDO_MEASURE", "0"},
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
  CHECK(options.interfaces == std::vector<std::string>{"eth0,^docker0,10.0.0.0/8"});
  CHECK(options.port_first == 42000);
  CHECK(options.port_last == 42099);
  CHECK(options.algorithm == "ring");
  CHECK(options.host == "rack 4");
  CHECK(options.segment_bytes == std::size_t{256} << 10);
  CHECK(options.depth == 4);
  CHECK(options.connections == 3);
  CHECK(options.constants == "/etc/rondo.json");
  CHECK(options.measure == false);
  CHECK(options.staging_bytes == std::size_t{32} << 20);
  CHECK(options.reproducible);
  CHECK(options.checksum);

  const rendezvous::Place place = rendezvous::resolve_place(options);
  CHECK(place.rank == 3);
  CHECK(place.size == 8);
  CHECK(place.url == "tcp://node0:29500");
  CHECK(place.secret == "hush");
  CHECK_FALSE(place.this_host_only);
  CHECK(place.source == "RONDO_RANK");
}

TEST_CASE("without variables the options have the defaults", "[environment]") {
  const Environment environment{{"RONDO_DEADLINE", ""}, {"RONDO_RANK", " "}};
  const Options options = Options::from_environment(), plain;
  CHECK(options.rank == -1);
  CHECK(options.size == 0);
  CHECK(options.rendezvous == plain.rendezvous);
  CHECK(options.deadline == milliseconds{300'000});
  CHECK(options.staging_bytes == std::size_t{16} << 20);
  const rendezvous::Place place = rendezvous::resolve_place(options);
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
               {"RONDO_CONNECTIONS", "17", "from 1 to 16"},
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
    CHECK(settings::bytes_variable("RONDO_SEGMENT_BYTES") == bytes);
  }
  ::setenv("RONDO_DEADLINE", "1.5", 1);
  CHECK(settings::seconds_variable("RONDO_DEADLINE") == milliseconds{1500});
  CHECK(settings::switch_variable("RONDO_CHECKSUM") == false);
}

TEST_CASE("a secret may stand in a file", "[environment]") {
  Environment environment{};
  const std::string path = environment.directory() + "/secret";
  std::ofstream(path) << "from a file\n";
  ::chmod(path.c_str(), 0600);
  ::setenv("RONDO_SECRET_FILE", path.c_str(), 1);
  CHECK(settings::secret_from_environment() == "from a file");
  ::setenv("RONDO_SECRET", "both", 1);
  CHECK_THAT(reading_message(), Contains("only one of them"));
  ::unsetenv("RONDO_SECRET");
  std::ofstream(path, std::ios::trunc) << "\n";
  CHECK_THAT(reading_message(), Contains("empty"));
  std::ofstream(path, std::ios::trunc) << std::string(5000, 'x');
  CHECK_THAT(reading_message(), Contains("at most 4096"));
}

TEST_CASE("options come before Rondo's variables, those before the launcher's", "[environment]") {
  const Environment environment{{"RANK", "1"},        {"WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "a"}, {"MASTER_PORT", "100"},
                                {"RONDO_RANK", "2"},  {"RONDO_RENDEZVOUS", "tcp://b:200"},
                                {"RONDO_SECRET", "s"}};
  Options options;
  rendezvous::Place place = rendezvous::resolve_place(options);
  CHECK(place.rank == 2);
  CHECK(place.size == 4);
  CHECK(place.url == "tcp://b:200");
  options.rank = 3;
  options.rendezvous = "tcp://c:300";
  options.secret = "t";
  place = rendezvous::resolve_place(options);
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
  CHECK_THAT(message_of(Errc::invalid_argument, options),
             Contains("set RONDO_RENDEZVOUS=tcp://HOST:PORT"));
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
  CHECK(rendezvous::resolve_place(options).url == "");
}

TEST_CASE("ranks of one user meet without configuration", "[environment][rendezvous]") {
  const Environment environment{
      {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"PMIX_NAMESPACE", "77"}};
  std::vector<rendezvous::Place> places;
  for (const char* rank : {"0", "1", "2"}) {
    ::setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    places.push_back(rendezvous::resolve_place(Options{}));
  }
  CHECK(what_is_wrong(join_all(places)) == "");
  // The key stays; the job's file is removed.
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(rendezvous::user_directory()))
    files.push_back(entry.path().filename());
  CHECK(files == std::vector<std::string>{"key"});
}

TEST_CASE("the user's directory must be the user's alone", "[environment]") {
  const Environment environment{};
  const std::string path = environment.directory() + "/rondo-" + std::to_string(::geteuid());
  CHECK(rendezvous::user_directory() == path);
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);

  ::chmod(path.c_str(), 0755);
  CHECK_THROWS_WITH(rendezvous::user_directory(),
                    Contains("others may enter it") && Contains("RONDO_RENDEZVOUS"));
  std::filesystem::remove_all(path);
  std::filesystem::create_directory_symlink(environment.directory(), path);
  CHECK_THROWS_WITH(rendezvous::user_directory(), Contains("not a directory"));
  std::filesystem::remove(path);

  const std::string secret = rendezvous::user_secret("a");
  CHECK(rendezvous::user_secret("a") == secret);
  CHECK(rendezvous::user_secret("b") != secret);
  ::chmod((path + "/key").c_str(), 0644);
  CHECK_THROWS_WITH(rendezvous::user_secret("a"), Contains("open to others"));
  std::filesystem::remove(path + "/key");
  CHECK(rendezvous::user_secret("a") != secret);
}

TEST_CASE("dumps have a directory of the user's alone", "[environment]") {
  const Environment environment{};
  ::setenv("TMPDIR", environment.directory().c_str(), 1);
  const std::string path = environment.directory() + "/rondo-" + std::to_string(::geteuid());
  for (const std::string& part : {path, path + "/dumps"}) {
    CHECK(rendezvous::dump_directory() == path + "/dumps");
    CHECK(std::filesystem::status(part).permissions() == std::filesystem::perms::owner_all);
    ::chmod(part.c_str(), 0750);
    CHECK_THROWS_WITH(rendezvous::dump_directory(),
                      Contains(part) && Contains("others may enter it") && Contains("RONDO_DUMP"));
    std::filesystem::remove_all(part);
    std::filesystem::create_directory_symlink(environment.directory(), part);
    CHECK_THROWS_WITH(rendezvous::dump_directory(), Contains("not a directory"));
    std::filesystem::remove(part);
  }
  ::setenv("TMPDIR", "relative", 1);
  CHECK(rendezvous::dump_directory().starts_with("/tmp/rondo-"));
}

TEST_CASE("processes that come at once agree on the user's key", "[environment]") {
  const Environment environment{};
  std::vector<std::future<std::string>> futures;
  for (int i = 0; i < 8; ++i)
    futures.push_back(std::async(std::launch::async, [] { return rendezvous::user_secret("x"); }));
  const std::string first = futures.front().get();
  for (std::size_t i = 1; i < futures.size(); ++i) CHECK(futures[i].get() == first);
}

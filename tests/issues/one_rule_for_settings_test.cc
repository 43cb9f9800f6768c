// SPDX-License-Identifier: Apache-2.0
//
// connect(Options{...}) did not read RONDO_ variables that joining does not need. Ranks with
// different settings failed in the first operation, if at all, and no message named the setting.
#include <rondo/communicator.h>

#include <barrier>
#include <optional>

#include "../lib/environment_guard.h"
#include "catch.h"
#include "lib/settings/settings.h"
#include "lib/settings/variables.h"
#include "support/ranks.h"

using namespace rondo;
using Catch::Contains;
using rondo::testing::expect;
using rondo::testing::MemoryStore;
using rondo::testing::run_ranks;
using rondo::tests::Environment;

namespace {

Options options_of(MemoryStore& store, int rank, int size) {
  Options options = rondo::testing::Setup::quick_options();
  options.rank = rank;
  options.size = size;
  options.store = &store;
  return options;
}

// Returns what connect() throws on each rank, or "" where it does not throw.
std::vector<std::string> messages(int size, Errc code,
                                  const std::function<void(Options&, int)>& change) {
  MemoryStore store;
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  run_ranks(size, "ranks with settings of their own", [&](int rank) {
    Options options = options_of(store, rank, size);
    change(options, rank);
    try {
      Communicator communicator = Communicator::connect(options);
      communicator.barrier().wait();
    } catch (const Error& error) {
      expect(error.code() == code, error.what());
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  return texts;
}

}  // namespace

TEST_CASE("a variable counts where the program has not set the field", "[issues][environment]") {
  const Environment environment{{"RONDO_ALGORITHM", "star"}, {"RONDO_TRANSPORT", "tcp"}};
  MemoryStore store;
  run_ranks(2, "algorithms", [&](int rank) {
    Options options = options_of(store, rank, 2);
    const Communicator by_variable = Communicator::connect(options);
    expect(by_variable.algorithm(Collective::all_reduce, 100, DType::f32) == "star",
           "the variable is not read");
  });
  MemoryStore other;
  run_ranks(2, "algorithms", [&](int rank) {
    Options options = options_of(other, rank, 2);
    options.algorithm = "ring";
    const Communicator by_field = Communicator::connect(options);
    expect(by_field.algorithm(Collective::all_reduce, 100, DType::f32) == "ring",
           "the field does not come first");
  });
}

TEST_CASE("every field comes before its variable, and that before the default",
          "[issues][environment]") {
  const Options defaults = [] {
    const Environment none{};
    return settings::with_environment({});
  }();
  CHECK(defaults.deadline == std::chrono::seconds{300});
  CHECK(defaults.connect_deadline == std::chrono::seconds{30});
  CHECK(defaults.connections == 1);
  CHECK(defaults.staging_bytes == std::size_t{16} << 20);
  CHECK((defaults.metrics.empty() && defaults.metrics_labels.empty()));
  CHECK(defaults.metrics_period == std::chrono::seconds{5});
  CHECK_FALSE(defaults.reproducible);

  const Environment environment{{"RONDO_DEADLINE", "5"},
                                {"RONDO_CONNECT_DEADLINE", "6"},
                                {"RONDO_TRANSPORT", "shm"},
                                {"RONDO_INTERFACE", "lo"},
                                {"RONDO_CONNECTIONS", "3"},
                                {"RONDO_PORT_RANGE", "4000-4001"},
                                {"RONDO_ALGORITHM", "tree"},
                                {"RONDO_HOST", "a"},
                                {"RONDO_SEGMENT_BYTES", "4K"},
                                {"RONDO_DEPTH", "7"},
                                {"RONDO_CONSTANTS", "/file"},
                                {"RONDO_MEASURE", "1"},
                                {"RONDO_STAGING_BYTES", "1M"},
                                {"RONDO_REPRODUCIBLE", "1"},
                                {"RONDO_CHECKSUM", "1"},
                                {"RONDO_RANKS_ON_HOST", "9"},
                                {"RONDO_METRICS", "/m.prom"},
                                {"RONDO_METRICS_PERIOD", "2"},
                                {"RONDO_METRICS_LABELS", "a=b, c=d"}};
  const Options variables = settings::with_environment({});
  CHECK(variables.deadline == std::chrono::seconds{5});
  CHECK(variables.connect_deadline == std::chrono::seconds{6});
  CHECK(variables.transports == std::vector<std::string>{"shm"});
  CHECK(variables.interfaces == std::vector<std::string>{"lo"});
  CHECK(variables.connections == 3);
  CHECK((variables.port_first == 4000 && variables.port_last == 4001));
  CHECK(variables.algorithm == "tree");
  CHECK(variables.host == "a");
  CHECK(variables.segment_bytes == 4096);
  CHECK(variables.depth == 7);
  CHECK(variables.constants == "/file");
  CHECK(variables.measure == true);
  CHECK(variables.staging_bytes == std::size_t{1} << 20);
  CHECK((variables.reproducible && variables.checksum));
  CHECK(variables.ranks_on_host == 9);
  CHECK(variables.metrics == "/m.prom");
  CHECK(variables.metrics_period == std::chrono::seconds{2});
  CHECK(variables.metrics_labels == std::vector<std::string>{"a=b", "c=d"});

  const Options own{.connect_deadline = std::chrono::seconds{1},
                    .deadline = std::chrono::seconds{2},
                    .transports = {"tcp"},
                    .interfaces = {"eth0"},
                    .connections = 1,
                    .port_first = 50,
                    .port_last = 60,
                    .reproducible = false,
                    .host = "b",
                    .ranks_on_host = 3,
                    .checksum = false,
                    .algorithm = "ring",
                    .segment_bytes = 1,
                    .depth = 1,
                    .constants = "/own",
                    .measure = false,
                    .staging_bytes = 2,
                    .metrics = "/own.prom",
                    .metrics_period = std::chrono::seconds{1},
                    .metrics_labels = {"e=f"}};
  const Options fields = settings::with_environment(own);
  CHECK(fields.deadline == own.deadline);
  CHECK(fields.connect_deadline == own.connect_deadline);
  CHECK(fields.transports == own.transports);
  CHECK(fields.ranks_on_host == 3);
  CHECK(fields.metrics == "/own.prom");
  CHECK(fields.metrics_period == own.metrics_period);
  CHECK(fields.metrics_labels == own.metrics_labels);
  CHECK(fields.interfaces == own.interfaces);
  CHECK(fields.connections == 1);
  CHECK((fields.port_first == 50 && fields.port_last == 60));
  CHECK(fields.algorithm == "ring");
  CHECK(fields.host == "b");
  CHECK(fields.segment_bytes == 1);
  CHECK(fields.depth == 1);
  CHECK(fields.constants == "/own");
  CHECK(fields.measure == false);
  CHECK(fields.staging_bytes == 2);
  CHECK_FALSE(fields.reproducible);
  CHECK_FALSE(fields.checksum);
  // A bad variable does no harm where the program has set the field.
  ::setenv("RONDO_DEADLINE", "soon", 1);
  CHECK_NOTHROW(settings::with_environment(own));
  CHECK_THROWS_WITH(settings::with_environment({}), Contains("RONDO_DEADLINE is 'soon'"));
  CHECK_THROWS_WITH(settings::with_environment({.deadline = std::chrono::seconds{-1}}),
                    Contains("deadline is -1000 ms"));
}

TEST_CASE("a variable that cannot be read leaves the others their effect",
          "[issues][environment]") {
  const Environment environment{{"RONDO_CONNECT_DEADLINE", "soon"},
                                {"RONDO_DEADLINE", "20"},
                                {"RONDO_PORT_RANGE", "42000-42009"}};
  Options options;
  options.deadline = std::chrono::milliseconds{-1};
  CHECK_THROWS_WITH(settings::fill_from_environment(options),
                    Contains("deadline is -1 ms, it must be more than 0"));
  CHECK(options.deadline == std::chrono::seconds{20});
  CHECK(options.connect_deadline == settings::default_connect_deadline);
  CHECK(options.port_first == 42000);
  CHECK(options.port_last == 42009);
}

TEST_CASE("a split takes over its parent's settings, whatever the environment says by then",
          "[issues][environment]") {
  MemoryStore store;
  std::barrier connected(2), changed(2);
  std::optional<Environment> environment;
  run_ranks(2, "a split after a change of the environment", [&](int rank) {
    Options options = options_of(store, rank, 2);
    options.algorithm = {};
    Communicator communicator = Communicator::connect(options);
    connected.arrive_and_wait();
    if (rank == 0)
      environment.emplace(std::initializer_list<std::pair<const char*, const char*>>{
          {"RONDO_ALGORITHM", "ring"}, {"RONDO_INTEGRITY", "junk"}, {"RONDO_SEGMENT_BYTES", "64"}});
    changed.arrive_and_wait();
    const Communicator group = *communicator.split(0, 0);
    expect(group.describe(Collective::all_reduce, 100'000, DType::f32) ==
               communicator.describe(Collective::all_reduce, 100'000, DType::f32),
           group.describe(Collective::all_reduce, 100'000, DType::f32));
  });
}

TEST_CASE("ranks with different settings are told which, all of them the same",
          "[issues][environment]") {
  const Environment environment{{"RONDO_TRANSPORT", "tcp"}};
  const char* const remedy = ". Set the same on all ranks, in the variable or in Options";
  const auto same = [&](const std::vector<std::string>& texts, const std::string& wanted) {
    for (const std::string& text : texts)
      CHECK(text == "the ranks have different settings: " + wanted + remedy);
  };
  same(messages(3, Errc::mismatch,
                [](Options& o, int rank) { o.algorithm = rank == 2 ? "doubling" : "ring"; }),
       "RONDO_ALGORITHM: ring on ranks 0, 1, doubling on rank 2");
  same(messages(2, Errc::mismatch,
                [](Options& o, int rank) {
                  if (rank == 1) o.algorithm = "ring";
                  if (rank == 0) o.checksum = true;
                }),
       "RONDO_ALGORITHM: the planner's choice on rank 0, ring on rank 1; RONDO_CHECKSUM: 1 on rank "
       "0, 0 on "
       "rank 1");
  same(messages(2, Errc::mismatch, [](Options& o, int rank) { o.depth = rank + 1; }),
       "RONDO_DEPTH: 1 on rank 0, 2 on rank 1");
  same(messages(2, Errc::mismatch,
                [](Options& o, int rank) { o.segment_bytes = rank == 0 ? 0 : 65536; }),
       "RONDO_SEGMENT_BYTES: the planner's choice on rank 0, 65536 on rank 1");
  same(messages(2, Errc::mismatch, [](Options& o, int rank) { o.reproducible = rank == 1; }),
       "RONDO_REPRODUCIBLE: 0 on rank 0, 1 on rank 1");
  same(messages(2, Errc::mismatch,
                [](Options& o, int rank) { o.staging_bytes = rank == 0 ? 0 : 1 << 20; }),
       "RONDO_STAGING_BYTES: 16777216 on rank 0, 1048576 on rank 1");
  same(messages(2, Errc::mismatch,
                [](Options& o, int rank) {
                  if (rank == 1) o.transports = {"shm", "rdma", "tcp"};
                }),
       "RONDO_TRANSPORT: tcp on rank 0, any on rank 1");
}

TEST_CASE("settings that may differ do not stop anybody", "[issues][environment]") {
  const Environment environment{};
  const auto texts = messages(2, Errc::mismatch, [](Options& o, int rank) {
    o.deadline = std::chrono::seconds{30 + rank};
    o.connect_deadline = std::chrono::seconds{30 + rank};
    o.connections = 1 + rank;
    o.transports =
        rank == 0 ? std::vector<std::string>{"shm", "tcp"} : std::vector<std::string>{"tcp", "shm"};
    o.measure = rank == 0;
  });
  for (const std::string& text : texts) CHECK(text.empty());
}

TEST_CASE("what a peer says of its settings is bounded and printable", "[issues][environment]") {
  base::Writer writer;
  settings::put_settings(writer, {{"RONDO_ALGORITHM", "a\033[2Jb"}});
  const transports::Blob bytes = writer.take();
  base::Reader reader(bytes);
  CHECK(settings::get_settings(reader) ==
        settings::Settings{{"RONDO_ALGORITHM", "(a text that cannot be shown)"}});
  CHECK(reader.ok());
  base::Writer large;
  settings::put_settings(large, {{"RONDO_ALGORITHM", std::string(257, 'x')}});
  const transports::Blob more = large.take();
  base::Reader second(more);
  settings::get_settings(second);
  CHECK_FALSE(second.ok());
}

TEST_CASE("a name that Rondo does not know leads to the nearest that it has",
          "[issues][environment]") {
  CHECK(settings::nearest_variable("RONDO_TRANSPORTS") == "RONDO_TRANSPORT");
  CHECK(settings::nearest_variable("RONDO_TRANPORT") == "RONDO_TRANSPORT");
  CHECK(settings::nearest_variable("RONDO_RNAK") == "RONDO_RANK");
  CHECK(settings::nearest_variable("RONDO_ALGO") == "");
  CHECK(settings::nearest_variable("RONDO_SEGMENTBYTES") == "RONDO_SEGMENT_BYTES");
  CHECK(settings::nearest_variable("RONDO_SOMETHING_ELSE") == "");
  CHECK(settings::nearest_variable("RONDO_XYZ") == "");
  CHECK(settings::nearest_variable("RONDO_DEPTH") == "");
  for (const char* name :
       {"RONDO_RANK", "RONDO_LOCAL_RANK", "RONDO_ISA", "RONDO_LOG", "RONDO_DEPTH"})
    CHECK(settings::is_variable(name));
}

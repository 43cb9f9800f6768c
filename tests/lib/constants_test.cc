// SPDX-License-Identifier: Apache-2.0
#include "lib/wire/constants.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <mutex>

#include <rondo/error.h>

#include "catch.h"
#include "lib/measure_links.h"
#include "support/effort.h"
#include "tests/support/ranks.h"

using namespace rondo;
using namespace rondo::testing;
using Catch::Matchers::Contains;

namespace {

// A file with this text for as long as the object lives.
class TextFile {
 public:
  explicit TextFile(const std::string& text) {
    const int descriptor = ::mkstemp(path_.data());
    REQUIRE(descriptor >= 0);
    ::close(descriptor);
    std::ofstream(path_) << text;
  }
  ~TextFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/rondo_constants_XXXXXX";
};

PlanConstants some_constants() {
  return {.host = {1.5e-6, 1e-10, 4e-7},
          .network = {3.25e-5, 8.3e-9, 1e-6},
          .reduce_seconds_per_byte = 7e-11};
}

bool same(const PlanConstants& a, const PlanConstants& b) {
  return format_constants(a) == format_constants(b);
}

}  // namespace

TEST_CASE("constants survive a file", "[constants]") {
  const TextFile file(format_constants(some_constants()));
  CHECK(same(read_constants(file.path()), some_constants()));
  CHECK_FALSE(same(default_constants(), some_constants()));
  CHECK(wire::is_sane(default_constants()));
}

TEST_CASE("a file that holds no constants is refused with what is wrong", "[constants]") {
  const std::string good = format_constants(some_constants());
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& message) {
    std::string text = good;
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    const TextFile file(text.replace(at, from.size(), to));
    CHECK_THROWS_WITH(read_constants(file.path()), Contains(message) && Contains(file.path()));
  };
  refused("{", "", "it is not JSON");
  refused("\"frame_s\"", "\"frames\"", "host.frame_s is missing");
  refused("3.25e-05", "-1", "network.latency_s is -1; possible are numbers from 0 to 10");
  refused("3.25e-05", "1e300", "network.latency_s is 1e+300");
  refused("3.25e-05", "\"fast\"", "network.latency_s is \"fast\"");
  refused("\"rondo_constants\": 1", "\"rondo_constants\": 2", "this version reads 1");
  refused("\"rondo_constants\": 1", "\"rondo_constants\": 1, \"more\": 1", "does not know");
  refused("\"host\": {", "\"host\": [], \"other\": {", "host.latency_s is missing");
  for (const char* text : {"", "[]", "7", "null"}) {
    const TextFile file(text);
    CHECK_THROWS_WITH(read_constants(file.path()), Contains(file.path()));
  }
  CHECK_THROWS_WITH(read_constants("/nowhere/at/all"), Contains("No such file"));
  CHECK_THROWS_WITH(read_constants("/tmp"), Contains("/tmp"));
  const TextFile large(std::string(100'000, ' '));
  CHECK_THROWS_WITH(read_constants(large.path()), Contains("more than 65536 bytes"));
}

TEST_CASE("constants from another rank are checked", "[constants]") {
  PlanConstants costs = some_constants();
  for (const double bad : {-1.0, 1e9, std::nan(""), std::numeric_limits<double>::infinity()}) {
    costs.network.frame_s = bad;
    CHECK_FALSE(wire::is_sane(costs));
    CHECK(wire::is_sane(wire::make_sane(costs)));
  }
  base::Writer writer;
  wire::put_constants(writer, some_constants());
  const auto bytes = writer.take();
  base::Reader reader(bytes);
  CHECK(same(wire::get_constants(reader), some_constants()));
  CHECK((reader.ok() && reader.left() == 0));
}

TEST_CASE("rank 0 measures with one rank of each kind", "[constants]") {
  const schedules::Hosts hosts(std::vector<int>{0, 1, 0, 1, 0});
  CHECK(lib::plan_measurement(hosts, 5, false).same_host == 2);
  CHECK(lib::plan_measurement(hosts, 5, false).other_host == 1);
  CHECK(lib::plan_measurement(hosts, 5, true).same_host == schedules::no_rank);
  CHECK(lib::plan_measurement({}, 3, false).same_host == 1);
  CHECK(lib::plan_measurement({}, 3, false).other_host == schedules::no_rank);
  CHECK(lib::plan_measurement({}, 1, false).same_host == schedules::no_rank);
  const double reduction = lib::measure_reduction();
  CHECK(reduction > 1e-13);
  CHECK(reduction < 1e-7);
}

TEST_CASE("all ranks reckon with what rank 0 was given, whatever they were given", "[constants]") {
  const TextFile first(format_constants(some_constants()));
  std::atomic<int> equal = 0;
  MemoryStore store;
  run_ranks(3, "constants from a file", [&](int rank) {
    Options options = Setup::quick_options();
    options.rank = rank;
    options.size = 3;
    options.store = &store;
    options.constants = rank == 0 ? first.path() : "/nowhere/at/all";
    options.measure = rank != 0;
    Communicator communicator = Communicator::connect(options);
    if (same(communicator.constants(), some_constants())) ++equal;
    communicator.barrier().wait();
  });
  CHECK(equal == 3);
}

TEST_CASE("constants in memory come before a file and a measurement", "[constants]") {
  std::atomic<int> equal = 0;
  MemoryStore store;
  run_ranks(2, "constants in memory", [&](int rank) {
    Options options = Setup::quick_options();
    options.rank = rank;
    options.size = 2;
    options.store = &store;
    options.constants = "/nowhere/at/all";
    options.measure = true;
    options.transports = {"tcp"};
    if (rank == 0) options.plan_constants = some_constants();
    Communicator communicator = Communicator::connect(options);
    if (same(communicator.constants(), some_constants())) ++equal;
    communicator.barrier().wait();
  });
  CHECK(equal == 2);
}

TEST_CASE("constants in memory that cannot be are refused", "[constants]") {
  Options options = Setup::quick_options();
  options.rank = 0;
  options.size = 1;
  options.plan_constants = some_constants();
  options.plan_constants->host.latency_s = -1;
  CHECK_THROWS_WITH(Communicator::connect(options),
                    Contains("plan_constants are out of range") && Contains("\"latency_s\": -1"));
}

TEST_CASE(
    "what rank 0 measures holds on all ranks, and operations go on as though nothing had been",
    "[constants]") {
  for (const Over over : {Over::mem, Over::tcp}) {
    Setup setup;
    setup.over = over;
    setup.options.measure = true;
    std::mutex mutex;
    std::vector<std::string> seen;
    run_communicators(setup, "measured constants", [&](Communicator& communicator, int) {
      double value = 1;
      const Buffer buffer{&value, 1, DType::f64};
      communicator.all_reduce(buffer, buffer, ReduceOp::sum).wait();
      expect(value == 2, "the sum is wrong");
      expect(communicator.statistics().operations == 1, "a measurement counts as an operation");
      const PlanConstants constants = communicator.constants();
      expect(constants.host.latency_s > 0 && constants.host.seconds_per_byte > 0,
             "nothing was measured");
      const std::lock_guard lock(mutex);
      seen.push_back(format_constants(constants));
    });
    REQUIRE(seen.size() == 2);
    CHECK(seen[0] == seen[1]);
  }
}

TEST_CASE("operations may begin before the other end has seen that the measurement is over",
          "[constants]") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const Priority priority = GENERATE(Priority::bulk, Priority::urgent);
  Setup setup;
  setup.over = over;
  setup.options.measure = true;
  setup.options.algorithm = "ring";
  for (int turn = 0; turn < (whole_set() ? 15 : 4); ++turn)
    CHECK_NOTHROW(
        run_communicators(setup, "an operation at once", [&](Communicator& communicator, int) {
          double value = 1;
          const Buffer buffer{&value, 1, DType::f64};
          OpOptions options;
          options.priority = priority;
          communicator.all_reduce(buffer, buffer, ReduceOp::sum, options).wait();
          expect(value == 2, "the sum is wrong");
        }));
}

TEST_CASE("with measuring off the constants are those of the header", "[constants]") {
  Setup setup;
  setup.options.measure = false;
  run_communicators(setup, "no measurement", [&](Communicator& communicator, int) {
    expect(same(communicator.constants(), default_constants()),
           "the constants are not the usual ones");
  });
}

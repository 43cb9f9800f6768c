// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "grad/trace.h"
#include "grad/trace_file.h"
#include "training/helpers.h"

namespace rondo::testing {
namespace {

using std::chrono::microseconds;
using Json = nlohmann::json;

// A new folder, which the destructor removes.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "rondo_trace_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

Json read(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

// Steps of two buckets that overlap on the wire, from `start` on.
void keep_steps(grad::Trace& trace, grad::Trace::Time start, int steps) {
  for (int step = 0; step < steps; ++step) {
    const grad::Trace::Time at = start + microseconds(1000 * step);
    trace.begin_step(static_cast<std::uint64_t>(step) + 7, at);
    trace.add(0, 4000, at + microseconds(10), at + microseconds(15), at + microseconds(115));
    trace.add(1, 8000, at + microseconds(60), at + microseconds(70), at + microseconds(170));
    trace.finish(at + microseconds(120), at + microseconds(200));
  }
}

std::vector<Json> events_of(const Json& file, int rank, const std::string& phase) {
  std::vector<Json> events;
  for (const Json& event : file["traceEvents"])
    if (event["pid"] == rank && event["ph"] == phase) events.push_back(event);
  return events;
}

std::string track_name(const Json& file, const Json& event) {
  for (const Json& each : file["traceEvents"])
    if (each["ph"] == "M" && each["name"] == "thread_name" && each["pid"] == event["pid"] &&
        each["tid"] == event["tid"])
      return each["args"]["name"];
  return "";
}

TEST_CASE(
    "a trace has every bucket of every rank, on tracks where nothing overlaps, by one clock") {
  const Folder folder;
  const std::string path = folder.file("trace.json");
  const grad::Trace::Time start = std::chrono::steady_clock::now();
  constexpr int size = 3;
  Setup setup = ranks(size);
  setup.over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(setup, "save", [&](Communicator& c, int rank) {
    grad::Trace trace(4, 2);
    keep_steps(trace, start, 3 + rank);
    trace.save(c, path);
  }));
  const Json file = read(path);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<Json> spans = events_of(file, rank, "X"),
                            instants = events_of(file, rank, "i");
    const std::size_t steps = rank == 0 ? 3 : 4;  // as many as it was to keep
    REQUIRE(spans.size() == steps * 5);
    REQUIRE(instants.size() == steps * 2);
    CHECK(instants[0]["name"] == "begin_step");
    CHECK(instants[1]["name"] == "finish");
    CHECK(instants[1]["ts"].get<double>() - instants[0]["ts"].get<double>() ==
          Approx(200).margin(0.1));
    CHECK(spans[0]["name"] == "exposed");
    CHECK(spans[0]["ts"].get<double>() - instants[0]["ts"].get<double>() ==
          Approx(120).margin(0.1));
    CHECK(spans[0]["dur"].get<double>() == Approx(80).margin(0.1));
    CHECK(track_name(file, spans[0]) == "steps");
    const Json& queued = spans[steps];
    CHECK(queued["name"] == "bucket 0");
    CHECK(queued["cat"] == "queued");
    CHECK(queued["dur"].get<double>() == Approx(5).margin(0.1));
    CHECK(queued["args"]["bytes"] == 4000);
    CHECK(track_name(file, queued) == "queued");
    const Json &first = spans[steps * 3], &second = spans[steps * 3 + 1];
    CHECK(first["cat"] == "wire");
    CHECK(first["dur"].get<double>() == Approx(100).margin(0.1));
    CHECK(second["args"]["bus bandwidth, GB/s"].get<double>() ==
          Approx(8000 * 4.0 / 3 / 100e3).epsilon(0.01));
    CHECK(track_name(file, first) == "wire");
    CHECK(track_name(file, second) == "wire 2");
    // All ranks are threads here, so there is one clock: the clock offset that was found must be
    // within its stated error.
    const std::string name = events_of(file, rank, "M")[0]["args"]["name"];
    const double off =
        instants[0]["ts"].get<double>() - events_of(file, 0, "i")[0]["ts"].get<double>();
    if (rank > 0) CHECK(std::abs(off) <= std::stod(name.substr(name.find("within ") + 7)) + 0.1);
  }
  CHECK(!std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("a trace that cannot be written names path and reason on every rank") {
  const Folder folder;
  const std::string path = folder.file("missing/trace.json");
  CHECK_NOTHROW(run_communicators(ranks(3), "refused", [&](Communicator& c, int) {
    grad::Trace trace(1, 1);
    const std::string message = error_of(Errc::system, [&] { trace.save(c, path); });
    expect(message == "save_trace: rank 0 cannot open " + path + ".tmp: No such file or directory",
           message);
    c.barrier().wait();  // the communicator is unharmed
  }));
  CHECK(folder.empty());
}

TEST_CASE("a trace that cannot get its name leaves nothing behind") {
  const Folder folder;
  const std::string path = folder.file("taken");
  std::filesystem::create_directories(path + "/full");
  {
    grad::TraceFile file(path);
    file.add_rank(0, 1, {});
    CHECK(file.commit() == "cannot rename " + path + ".tmp to " + path + ": Is a directory");
  }
  CHECK(!std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("a trace keeps whole steps only, and no more than it was made for") {
  const Folder folder;
  CHECK_NOTHROW(run_communicators(ranks(1), "keep", [&](Communicator& c, int) {
    const grad::Trace::Time now = std::chrono::steady_clock::now();
    grad::Trace trace(2, 1), nothing;
    keep_steps(nothing, now, 2);
    trace.begin_step(6, now);
    trace.add(0, 1, now, now, now);  // this step never finishes
    keep_steps(trace, now, 3);
    trace.expect(5);
    trace.save(c, folder.file("two"));
    nothing.save(c, folder.file("none"));
    expect(trace.steps() == 2 && nothing.steps() == 0, "steps");
  }));
  CHECK(events_of(read(folder.file("two")), 0, "X").size() == 10);
  CHECK(events_of(read(folder.file("two")), 0, "i")[0]["args"]["step"] == 7);
  CHECK(events_of(read(folder.file("none")), 0, "X").empty());
  CHECK_THROWS_AS(grad::Trace(grad::Trace::most_buckets, 2), Error);
}

}  // namespace
}  // namespace rondo::testing

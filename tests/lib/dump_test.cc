// SPDX-License-Identifier: Apache-2.0
//
// The text of a dump, and where files go. tests/faults has dumps of real failures.
#include "lib/recorder/dump.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>

#include "base/file_descriptor.h"
#include "catch.h"
#include "environment_guard.h"
#include "support/standard_error.h"

using namespace rondo;
using tests::Environment;

namespace {

namespace fs = std::filesystem;

constexpr nanoseconds one_second = std::chrono::seconds{1};

operation::Record made_record(std::uint64_t number, base::TimePoint now) {
  operation::Record record;
  record.signature = {
      Collective::reduce, DType::bf16, ReduceOp::max, schedules::Algorithm::tree, 2, 100, 0.5, 255};
  record.number = number;
  record.state = operation::RecordState::ranks;
  record.bytes = 200;
  record.times.called = now - 2 * one_second;
  record.times.last = 3;
  record.times.late = one_second / 2;
  std::string("a\"b\\c").copy(record.tag, 31);
  return record;
}

engine::Snapshot snapshot_of(std::size_t operations = 1) {
  engine::Snapshot seen;
  seen.now = base::TimePoint(3600 * one_second);
  for (std::size_t i = 0; i < operations; ++i)
    seen.records.push_back(made_record(operations - i, seen.now));
  return seen;
}

recorder::Job job_of(std::uint64_t number = 0xab) {
  return {
      1, 2, "/1.0", number, "tcp", {"self", "tcp"}, {"node 1", "node2"}, {{"RONDO_DEPTH", "4"}}};
}

std::string text_now(const engine::Snapshot& seen, const recorder::Heard& heard = {}) {
  return recorder::text_of(seen, recorder::Why::call, job_of(), heard, 1'000'000'000'123'456'789);
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return (std::ostringstream() << file.rdbuf()).str();
}

// Files of this process may have 100 bytes meanwhile.
struct SmallFiles {
  SmallFiles() {
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{100, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before);
    ::signal(SIGXFSZ, handler);
  }
  rlimit before{};
  void (*const handler)(int) = ::signal(SIGXFSZ, SIG_IGN);
};

}  // namespace

TEST_CASE("dump: what each line says") {
  engine::Snapshot seen = snapshot_of();
  seen.failure =
      operation::Failure{Errc::mismatch, "rank 3\ncalled \"x\"", -1, {3, 5}, 1, "10.0.0.1:5"};
  seen.failed = seen.now - one_second / 1000;
  seen.status.lanes[0] = {4, 3, "reduce #4 (100 bf16 max, root 2)", "", {3}, "", 2'000'000'000, ""};
  operation::PeerView peer;
  peer.rank = 1;
  peer.address = "10.0.0.1:5";
  peer.expected = "#4 segment 0 frame 0";
  peer.bytes = 12;
  seen.peers.push_back(peer);
  const std::string text = text_now(seen, {{2, "has left"}});
  INFO(text);
  CHECK(text.rfind(
            "rondo dump 1\nwritten why=call rank=1 size=2 group=\"/1.0\" job=00000000000000ab ",
            0) == 0);
  CHECK(says(text, " time=2001-09-09T01:46:40.123456Z clock=3600000000000 "));
  CHECK(says(text,
             "\nverdict code=mismatch seen_by=1 culprits=3,5 at=-0.001000 link=\"10.0.0.1:5\" "
             "cause=\"rank 3 called \\\"x\\\"\"\n"));
  CHECK(says(text, "\nheard rank=2 text=\"has left\"\n"));
  CHECK(says(text,
             "\nlane lane=bulk started=4 finished=3 waits_for=3 waited=2.000000 "
             "call=\"reduce #4 (100 bf16 max, root 2)\"\n"));
  CHECK(says(text, "\nlane lane=messages started=0 finished=0\n"));
  CHECK(says(text, "\nsetting name=RONDO_DEPTH value=\"4\"\n"));
  CHECK(says(text,
             "\npeer lane=bulk rank=1 transport=tcp address=\"10.0.0.1:5\" "
             "expected=\"#4 segment 0 frame 0\" bytes=12 queued=0\n"));
  CHECK(says(text, "\nmember rank=0 host=\"node 1\"\n"));
  CHECK(says(text,
             "\nop lane=bulk number=1 state=ranks name=reduce type=bf16 count=100 op=max "
             "scale=0.5 root=2 algorithm=tree plan=00000000000000ff tag=\"a\\\"b\\\\c\" "
             "bytes=200 called=-2.000000 last=3 late=0.500000\n"));
  const auto lines = std::count(text.begin(), text.end(), '\n');
  CHECK(says(text, "\nend lines=" + std::to_string(lines - 2) + "\n"));
}

TEST_CASE("dump: a message has its peer and tag") {
  engine::Snapshot seen = snapshot_of();
  operation::Record& record = seen.records.front();
  record.lane = transports::Lane::messages;
  record.signature.operation = Collective::receive;
  record.signature.root = std::numeric_limits<std::uint32_t>::max();
  record.signature.plan = 7;
  CHECK(says(text_now(seen),
             "op lane=messages number=1 state=ranks name=receive type=bf16 "
             "count=100 peer=-1 key=7 tag="));
}

TEST_CASE("dump: times of a look before an unknown call are left out") {
  engine::Snapshot seen = snapshot_of();
  operation::Record& record = seen.records.front();
  record.times.called = {};
  record.times.sent = record.times.arrived = record.ended = seen.now - one_second;
  CHECK(says(text_now(seen), " bytes=200 ended=-1.000000 last=3 "));
}

TEST_CASE("dump: the oldest operations are left out above 4 MiB") {
  const recorder::Heard heard(100'000, {0, "rank 3 waits for data from rank 2"});
  const std::string text = text_now(snapshot_of(100'000), heard);
  CHECK(text.size() <= std::size_t{4} << 20);
  CHECK(text.size() > std::size_t{3} << 20);
  CHECK(says(text, " number=100000 "));
  CHECK_FALSE(says(text, " number=1 "));
  CHECK(says(text, "\nend lines="));
}

TEST_CASE("dump: files are in a folder of the job, and 16 jobs are kept") {
  const Environment environment{};
  ::setenv("RONDO_DUMP", environment.directory().c_str(), 1);
  fs::create_directory(environment.directory() + "/no job");
  std::string last;
  for (std::uint64_t job = 1; job <= 20; ++job) {
    recorder::Dumps dumps(job_of(job));
    last = dumps.failed(snapshot_of(), {});
    fs::last_write_time(
        fs::path(last.substr(last.find('/'))).parent_path(),
        fs::file_time_type::clock::now() - std::chrono::hours(1) + std::chrono::seconds(job));
  }
  ::setenv("RONDO_DUMP", "off", 1);
  const std::string path = environment.directory() + "/0000000000000014/rank1.failure.dump";
  CHECK(last == "; recorded in " + path);
  CHECK(says(content_of(path), "\nend lines="));
  CHECK((fs::status(path).permissions() & fs::perms::all) == fs::perms(0600));
  CHECK_FALSE(fs::exists(environment.directory() + "/0000000000000004"));
  CHECK(fs::exists(environment.directory() + "/0000000000000005"));
  CHECK(fs::exists(environment.directory() + "/no job"));
}

TEST_CASE("dump: what cannot be written costs a line, and a call says why") {
  const Environment environment{};
  const auto said = [](const char* folder) {
    ::setenv("RONDO_DUMP", folder, 1);
    recorder::Dumps dumps(job_of());
    const testing::StandardError error;
    CHECK(dumps.failed(snapshot_of(), {}).empty());
    return error.text();
  };
  CHECK(says(said("/no/such/folder"), "rank 1: the directory /no/such/folder/00"));
  CHECK(says(said("/dev/null"), "not a directory"));
  CHECK(said("off").empty());
}

TEST_CASE("dump: a file of the program's choice stays until the new one is whole") {
  const Environment environment{};
  const recorder::Dumps dumps(job_of());
  const auto write_to = [&](const std::string& path) {
    return dumps.write(snapshot_of(), recorder::Why::call, path);
  };
  const std::string path = environment.directory() + "/mine", full = path + ": file too large";
  const auto fails_when_full = [&] {
    const SmallFiles limit;
    CHECK_THROWS_WITH(write_to(path), Catch::Contains(full));
  };
  fails_when_full();
  CHECK(fs::is_empty(environment.directory()));
  CHECK(write_to(path) == path);
  const std::string before = content_of(path);
  CHECK(says(before, "written why=call "));
  fails_when_full();
  CHECK(content_of(path) == before);
  CHECK(write_to(path) == path);
  CHECK(std::distance(fs::directory_iterator(environment.directory()), {}) == 1);

  const std::string link = environment.directory() + "/link";
  fs::create_symlink(path, link);
  CHECK_THROWS_WITH(write_to(link), Catch::Contains("symbolic links"));
  fs::remove(link);
  const std::string pipe = environment.directory() + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  fs::create_symlink(pipe, link);
  const base::FileDescriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  for (const std::string& way : {pipe, link}) {
    CHECK(write_to(way) == way);
    std::string text(before.size() * 2, ' ');
    text.resize(static_cast<std::size_t>(
        std::max<ssize_t>(::read(reader.get(), text.data(), text.size()), 0)));
    CHECK(says(text, "\nend lines="));
  }
  CHECK(fs::is_fifo(pipe));
  CHECK(fs::is_symlink(link));
}

TEST_CASE("dump: a folder of the job that is a link is refused") {
  const Environment environment{};
  ::setenv("RONDO_DUMP", environment.directory().c_str(), 1);
  const recorder::Dumps dumps(job_of());
  ::unsetenv("RONDO_DUMP");
  const std::string job = environment.directory() + "/00000000000000ab";
  const auto is_refused = [&](const char* why) {
    CHECK_THROWS_WITH(dumps.write(snapshot_of(), recorder::Why::call, {}),
                      Catch::Contains(job + " cannot be used for dumps: " + why) &&
                          Catch::Contains("set RONDO_DUMP"));
  };
  fs::create_directory(environment.directory() + "/else");
  fs::create_directory_symlink(environment.directory() + "/else", job);
  is_refused("it is not a directory");
  fs::remove(job);
  fs::create_directory(job);
  CHECK(dumps.write(snapshot_of(), recorder::Why::call, {}) == job + "/rank1.call.dump");
  CHECK((::geteuid() != 0 || ::chown(job.c_str(), 4321, -1) == 0));  // as NFS shows those of root
  CHECK(dumps.write(snapshot_of(), recorder::Why::call, {}) == job + "/rank1.call.dump");
}

TEST_CASE("dump: a relative folder is that of the working directory of connect()") {
  const Environment environment{};
  const fs::path before = fs::current_path();
  fs::current_path(environment.directory());
  ::setenv("RONDO_DUMP", "here", 1);
  const recorder::Dumps dumps(job_of());
  ::unsetenv("RONDO_DUMP");
  fs::current_path(before);
  fs::create_directory(environment.directory() + "/here");
  CHECK(dumps.write(snapshot_of(), recorder::Why::call, {}) ==
        environment.directory() + "/here/00000000000000ab/rank1.call.dump");
}

TEST_CASE("dump: a long wait is written once for a communicator") {
  const Environment environment{};
  ::setenv("RONDO_DUMP", environment.directory().c_str(), 1);
  recorder::Dumps dumps(job_of());
  ::setenv("RONDO_DUMP", "off", 1);
  int looks = 0;
  for (int i = 0; i < 3; ++i)
    dumps.waits([&] {
      ++looks;
      return snapshot_of();
    });
  CHECK(looks == 1);
  CHECK(fs::exists(environment.directory() + "/00000000000000ab/rank1.slow.dump"));
}

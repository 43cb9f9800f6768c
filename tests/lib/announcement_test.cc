// SPDX-License-Identifier: Apache-2.0
//
// Joining by a file or by the program's store, and what earlier jobs have left there.
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/process.h"
#include "catch.h"
#include "lib/rendezvous/announcement.h"
#include "played_rank.h"

using namespace rondo;
using namespace rondo::tests;

namespace {

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns the identity of a process that has ended and was reaped.
std::string gone_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const auto status = base::read_process(child);
  ::waitpid(child, nullptr, 0);
  return std::to_string(child) + "." + std::to_string(status ? status->start_time : 1) + "." +
         base::process_namespace();
}

std::string announcement_of(const std::string& process, std::uint16_t port,
                            const std::string& host = base::host_identity()) {
  return rendezvous::write_announcement(
      {0x1234, host, process, {"127.0.0.1:" + std::to_string(port)}});
}

std::string meet(const std::string& path, int size = 3, const std::string& secret = "s") {
  return what_is_wrong(join_all(all_places(size, "file://" + path, secret)));
}

}  // namespace

TEST_CASE("ranks meet by a file, which is gone afterwards", "[rendezvous]") {
  const Directory directory;
  const std::string path = directory.path() + "/meet";
  const std::string secret = GENERATE("", "s");
  for (const int size : {2, 5}) CHECK(meet(path, size, secret) == "");
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("an empty file is as good as none", "[rendezvous]") {
  const Directory directory;
  write_file(directory.path() + "/meet", "");
  CHECK(meet(directory.path() + "/meet") == "");
}

TEST_CASE("rank 0 refuses who has read the announcement of another job", "[rendezvous]") {
  const Directory directory;
  const std::string path = directory.path() + "/meet";
  std::vector<std::future<Outcome>> ranks;
  const auto start = [&](int rank) {
    ranks.push_back(std::async(std::launch::async, [&path, rank] {
      return join_one(place_of(rank, 2, "file://" + path, "s"), with_deadline(milliseconds{20'000}),
                      record_of(rank));
    }));
  };
  start(0);
  const auto board = rendezvous::file_board(path);
  std::string why;
  std::optional<rendezvous::Announcement> found;
  const base::TimePoint until = base::after(base::Clock::now(), milliseconds{20'000});
  while (!found && base::Clock::now() < until) found = board->look(until, why);
  REQUIRE(found);
  const std::string& at = found->addresses.front();
  wire::Stream stale =
      connected(static_cast<std::uint16_t>(std::stoul(at.substr(at.rfind(':') + 1))));
  CHECK(greet(stale, {base::Purpose::rendezvous, 1, 2, found->job + 1, 0, 0}, "s") ==
        base::Verdict::wrong_job);
  start(1);
  std::vector<Outcome> outcomes;
  for (auto& rank : ranks) outcomes.push_back(rank.get());
  CHECK(what_is_wrong(outcomes) == "");
}

TEST_CASE("what an earlier job left behind harms nobody", "[rendezvous]") {
  const Directory directory;
  const std::string path = directory.path() + "/meet";
  const std::uint16_t port = free_port();
  const auto foreign = wire::listen_on(wire::loopback_address(port), 0, 0);  // never answers
  const std::string process =
      GENERATE(std::string("gone"), std::string("alive"), std::string("elsewhere"));
  for (const std::uint16_t stale_port : {free_port(), port}) {
    // Only this process can be the living one here: the announcement of another living process
    // would be respected. At the foreign port nobody answers, so the ranks notice only when the
    // handshake takes too long: that port is combined with "gone" alone.
    if (process != "gone" && stale_port == port) continue;
    write_file(path,
               announcement_of(process == "gone" ? gone_process() : rendezvous::process_identity(),
                               stale_port,
                               process == "elsewhere" ? "another-host.1" : base::host_identity()));
    auto rank1 = std::async(std::launch::async, [&] {
      return join_one(place_of(1, 2, "file://" + path, "s"), with_deadline(milliseconds{20'000}),
                      record_of(1));
    });
    std::vector<Outcome> outcomes;
    outcomes.push_back(join_one(place_of(0, 2, "file://" + path, "s"),
                                with_deadline(milliseconds{20'000}), record_of(0)));
    outcomes.push_back(rank1.get());
    CHECK(what_is_wrong(outcomes) == "");
    CHECK(outcomes.back().seconds < 4);
  }
}

TEST_CASE("a file of a living rank 0 is respected", "[rendezvous]") {
  const Directory directory;
  const std::string path = directory.path() + "/meet";
  const auto parent = base::read_process(::getppid());
  REQUIRE(parent);
  const std::string text =
      announcement_of(std::to_string(::getppid()) + "." + std::to_string(parent->start_time) + "." +
                          base::process_namespace(),
                      1);
  write_file(path, text);
  const Outcome outcome = join_one(place_of(0, 2, "file://" + path, "s"), Options{}, record_of(0));
  CHECK(outcome.code == Errc::rendezvous);
  CHECK_THAT(outcome.message,
             Catch::Contains("still runs") && Catch::Contains(std::to_string(::getppid())));
  CHECK(read_file(path) == text);
}

TEST_CASE("of several rank 0s that come at once one gets the file", "[rendezvous]") {
  const Directory directory;
  const std::string path = directory.path() + "/meet";
  constexpr int count = 6;
  int start[2], answers[2], end[2];
  REQUIRE((::pipe(start) == 0 && ::pipe(answers) == 0 && ::pipe(end) == 0));
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    ::close(start[1]);
    ::close(end[1]);
    char none = 0, answer = 'y';
    (void)!::read(start[0], &none, 1);
    const auto board = rendezvous::file_board(path);
    try {
      board->announce({static_cast<std::uint64_t>(i + 1),
                       base::host_identity(),
                       rendezvous::process_identity(),
                       {"127.0.0.1:1"}});
    } catch (const Error& error) {
      answer = error.code() == Errc::rendezvous ? 'n' : '?';
    }
    (void)!::write(answers[1], &answer, 1);
    (void)!::read(end[0], &none, 1);
    ::_exit(0);
  }
  ::close(start[1]);
  ::close(answers[1]);
  std::string heard;
  for (char answer = 0; heard.size() < count && ::read(answers[0], &answer, 1) == 1;)
    heard += answer;
  ::close(end[1]);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  for (const int descriptor : {start[0], answers[0], end[0]}) ::close(descriptor);
  std::ranges::sort(heard);
  CHECK(heard == "nnnnny");
}

TEST_CASE("other files are not touched", "[rendezvous]") {
  const Directory directory;
  const std::string path = directory.path() + "/precious";
  write_file(path, "something else");
  const Outcome outcome = join_one(place_of(0, 2, "file://" + path, "s"), Options{}, record_of(0));
  CHECK(outcome.code == Errc::invalid_argument);
  CHECK(read_file(path) == "something else");

  std::filesystem::create_symlink(path, directory.path() + "/link");
  const Outcome link = join_one(place_of(0, 2, "file://" + directory.path() + "/link", "s"),
                                Options{}, record_of(0));
  CHECK(link.code == Errc::invalid_argument);
  CHECK_THAT(link.message, Catch::Contains("symbolic link"));

  REQUIRE(::mkfifo((directory.path() + "/fifo").c_str(), 0600) == 0);
  CHECK(
      join_one(place_of(0, 2, "file://" + directory.path() + "/fifo", "s"), Options{}, record_of(0))
          .code == Errc::invalid_argument);
  const Outcome nowhere = join_one(place_of(0, 2, "file://" + directory.path() + "/no/meet", "s"),
                                   Options{}, record_of(0));
  CHECK(nowhere.code == Errc::system);
  CHECK_THAT(nowhere.message, Catch::Contains("no such file or directory"));
}

TEST_CASE("a file that never comes is named at the deadline", "[rendezvous]") {
  const Directory directory;
  const std::string url = "file://" + directory.path() + "/meet";
  const Outcome outcome =
      join_one(place_of(1, 2, url, "s"), with_deadline(milliseconds{200}), record_of(1));
  CHECK(outcome.code == Errc::deadline_exceeded);
  CHECK_THAT(outcome.message, Catch::Contains(directory.path() + "/meet does not exist") &&
                                  Catch::Contains("rank 0"));
}

TEST_CASE("rank 0 takes its file back when the join fails", "[rendezvous]") {
  const Directory directory;
  const std::string url = "file://" + directory.path() + "/meet";
  const Outcome outcome =
      join_one(place_of(0, 2, url, "s"), with_deadline(milliseconds{100}), record_of(0));
  CHECK(outcome.code == Errc::deadline_exceeded);
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("without a secret a file does not reach another host", "[rendezvous]") {
  const Directory directory;
  const std::string path = directory.path() + "/meet";
  write_file(path, announcement_of("1.1.1", 1, "another-host.1"));
  const Outcome outcome = join_one(place_of(1, 2, "file://" + path), Options{}, record_of(1));
  CHECK(outcome.code == Errc::authentication);
  CHECK_THAT(outcome.message, Catch::Contains("another host") && Catch::Contains("RONDO_SECRET"));
}

TEST_CASE("ranks meet by the program's store, time and again", "[rendezvous]") {
  MapStore store;
  Options options = with_deadline(milliseconds{20'000});
  options.store = &store;
  for (int round = 0; round < 3; ++round) {
    CHECK(what_is_wrong(join_all(all_places(4, ""), options)) == "");
    CHECK(store.empty());
  }
  CHECK(what_is_wrong(join_all(all_places(4, "", "secret"), options)) == "");

  MapStore empty;
  options = with_deadline(milliseconds{200});
  options.store = &empty;
  const Outcome outcome = join_one(place_of(1, 2, ""), options, record_of(1));
  CHECK(outcome.code == Errc::deadline_exceeded);
  CHECK_THAT(outcome.message, Catch::Contains("the program's store"));
}

// A run that was killed while its ranks joined leaves its address, and another job may listen there
// by now.
TEST_CASE("ranks do not stop at an old address in a store", "[rendezvous]") {
  const std::uint16_t port = free_port();
  const auto listeners = wire::listen_on(wire::loopback_address(port), 0, 0);
  MapStore store;
  Options options = with_deadline(milliseconds{20'000});
  options.store = &store;
  store.put("rondo/rendezvous", announcement_of("1.1.1", port));
  auto rank1 = std::async(std::launch::async,
                          [&] { return join_one(place_of(1, 2, "", "s"), options, record_of(1)); });
  REQUIRE(wire::wait_for(listeners.front().get(), POLLIN,
                         base::after(base::Clock::now(), milliseconds{20'000})));
  {
    wire::Stream stream(wire::accept_from(listeners.front().get()));
    base::Acceptor acceptor(0, "another");
    stream.send(acceptor.challenge(receive<base::hello_bytes>(stream)));
    receive<base::proof_bytes>(stream);  // refused
  }
  std::vector<Outcome> outcomes;
  outcomes.push_back(join_one(place_of(0, 2, "", "s"), options, record_of(0)));
  outcomes.push_back(rank1.get());
  CHECK(what_is_wrong(outcomes) == "");

  store.put("rondo/rendezvous", announcement_of(gone_process(), port));
  options.connect_deadline = milliseconds{200};
  const Outcome outcome = join_one(place_of(1, 2, "", "s"), options, record_of(1));
  CHECK(outcome.code == Errc::deadline_exceeded);
  CHECK_THAT(outcome.message, Catch::Contains("a process that is gone"));
}

TEST_CASE("the port range is kept to", "[rendezvous]") {
  const Directory directory;
  const std::uint16_t port = free_port();
  Options options = with_deadline(milliseconds{400});
  options.port_first = options.port_last = port;
  auto rank0 = std::async(std::launch::async, [&] {
    return join_one(place_of(0, 2, "file://" + directory.path() + "/meet", "s"), options,
                    record_of(0));
  });
  const std::string path = directory.path() + "/meet";
  const base::TimePoint until = base::after(base::Clock::now(), milliseconds{10'000});
  while (!std::filesystem::exists(path) && base::Clock::now() < until)
    wire::pause_until(base::after(base::Clock::now(), milliseconds{1}));
  const auto announcement = rendezvous::parse_announcement(read_file(path));
  rank0.get();
  REQUIRE(announcement);
  CHECK(announcement->addresses.front() == "127.0.0.1:" + std::to_string(port));
}

TEST_CASE("announcements survive the text and others do not", "[rendezvous]") {
  const rendezvous::Announcement announcement{
      0xfedcba9876543210u, "boot.1", "12.34.56", {"127.0.0.1:1", "[fd00::2]:65535"}};
  const std::string text = rendezvous::write_announcement(announcement);
  const auto parsed = rendezvous::parse_announcement(text);
  REQUIRE(parsed);
  CHECK(parsed->job == announcement.job);
  CHECK(parsed->host == announcement.host);
  CHECK(parsed->process == announcement.process);
  CHECK(parsed->addresses == announcement.addresses);
  for (std::size_t bytes = 0; bytes < text.find("127.0.0.1"); ++bytes)
    CHECK_FALSE(rendezvous::parse_announcement(text.substr(0, bytes)));
  CHECK_FALSE(rendezvous::parse_announcement(text + "more"));
  CHECK_FALSE(rendezvous::parse_announcement("rondo 2" + text.substr(7)));
  CHECK_FALSE(
      rendezvous::parse_announcement(text + std::string(rendezvous::most_announcement_bytes, ' ')));
}

// SPDX-License-Identifier: Apache-2.0
//
// The client of PMI, over sockets to a launcher that the test plays. Real launchers are in
// tests/launchers.
#include "lib/settings/exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <map>
#include <thread>

#include "environment_guard.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

namespace {

base::TimePoint in(milliseconds time) {
  return base::after(base::Clock::now(), time);
}

// Answers as a launcher of some processes does, until each has sent finalize or has closed its
// socket.
class PlayedLauncher {
 public:
  explicit PlayedLauncher(std::size_t processes) : processes_(processes) {
    for (Process& process : processes_) {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      process.near = base::FileDescriptor(ends[0]);
      process.far = base::FileDescriptor(ends[1]);
    }
    thread_ = std::thread([this] { answer_all(); });
  }
  PlayedLauncher(const PlayedLauncher&) = delete;
  PlayedLauncher& operator=(const PlayedLauncher&) = delete;
  ~PlayedLauncher() {
    for (Process& process : processes_) ::shutdown(process.far.get(), SHUT_RDWR);
    thread_.join();
  }

  int mistakes() const noexcept { return mistakes_; }
  std::unique_ptr<settings::Exchange> open(std::size_t process) {
    ::setenv("PMI_FD", std::to_string(processes_[process].far.get()).c_str(), 1);
    std::optional<settings::RanksOfExchange> ranks;
    return settings::open_pmi(in(milliseconds{20'000}), ranks);
  }

 private:
  struct Process {
    base::FileDescriptor near, far;
    std::string unread;
    bool in_barrier = false, ended = false;
  };

  void answer_all() {
    for (;;) {
      std::vector<pollfd> entries;
      for (const Process& process : processes_)
        entries.push_back({process.ended ? -1 : process.near.get(), POLLIN, 0});
      if (std::ranges::all_of(processes_, &Process::ended)) return;
      if (::poll(entries.data(), entries.size(), -1) < 0) return;
      for (std::size_t i = 0; i < entries.size(); ++i)
        if (entries[i].revents != 0) hear(processes_[i]);
    }
  }

  void hear(Process& process) {
    char bytes[4096];
    const ssize_t count = ::recv(process.near.get(), bytes, sizeof bytes, 0);
    if (count <= 0) return void(process.ended = true);
    process.unread.append(bytes, static_cast<std::size_t>(count));
    for (auto end = process.unread.find('\n'); end != std::string::npos;
         end = process.unread.find('\n')) {
      answer(process, process.unread.substr(0, end));
      process.unread.erase(0, end + 1);
    }
  }

  static std::string field(const std::string& line, const std::string& name) {
    const auto at = line.find(name + "=");
    if (at == std::string::npos) return {};
    return line.substr(at + name.size() + 1, line.find(' ', at) - at - name.size() - 1);
  }

  void answer(Process& process, const std::string& line) {
    const std::string command = field(line, "cmd");
    if (command == "init") {
      say(process, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    } else if (command == "get_my_kvsname") {
      say(process, "cmd=my_kvsname kvsname=space");
    } else if (command == "put") {
      if (field(line, "kvsname") != "space" || line.size() >= 1024) ++mistakes_;
      values_[field(line, "key")] = field(line, "value");
      say(process, "cmd=put_result rc=0 msg=success");
    } else if (command == "get") {
      const auto found = values_.find(field(line, "key"));
      say(process, found == values_.end()
                       ? "cmd=get_result rc=-1 msg=key_not_found value=unknown"
                       : "cmd=get_result rc=0 msg=success value=" + found->second);
    } else if (command == "finalize") {
      say(process, "cmd=finalize_ack");
      process.ended = true;
    } else if (command == "barrier_in") {
      process.in_barrier = true;
      if (!std::ranges::all_of(processes_, &Process::in_barrier)) return;
      for (Process& one : processes_) {
        one.in_barrier = false;
        say(one, "cmd=barrier_out");
      }
    }
  }

  void say(const Process& process, const std::string& line) {
    const std::string whole = line + "\n";
    if (::send(process.near.get(), whole.data(), whole.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(whole.size()))
      ++mistakes_;
  }

  std::vector<Process> processes_;
  std::map<std::string, std::string> values_;
  std::atomic<int> mistakes_{0};
  std::thread thread_;
};

// Returns the message of the error that opening PMI ends with.
std::string refusal(milliseconds limit = milliseconds{20'000}) {
  try {
    std::optional<settings::RanksOfExchange> ranks;
    settings::open_pmi(in(limit), ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("rank 0's text reaches the others by PMI", "[environment]") {
  const Environment environment{};
  PlayedLauncher launcher(3);
  std::vector<std::unique_ptr<settings::Exchange>> ranks;
  for (std::size_t rank = 0; rank < 3; ++rank) ranks.push_back(launcher.open(rank));
  std::string text;
  const int length = GENERATE(1, 240, 241, 3000);
  for (int i = 0; i < length; ++i) text += static_cast<char>(i % 7 == 0 ? ' ' : 'a' + i % 26);

  // The others are late: rank 1 says so, and passes the barrier with them at the next attempt.
  std::string message = "no error";
  try {
    ranks[1]->take(in(milliseconds{1}));
  } catch (const Error& error) {
    CHECK(error.code() == Errc::deadline_exceeded);
    message = error.what();
  }
  CHECK_THAT(message, Contains("not all ranks have come to its barrier"));
  auto rank0 =
      std::async(std::launch::async, [&] { ranks[0]->give(text, in(milliseconds{20'000})); });
  CHECK(ranks[2]->take(in(milliseconds{20'000})) == text);
  CHECK(ranks[1]->take(in(milliseconds{20'000})) == text);
  rank0.get();
  CHECK(launcher.mistakes() == 0);
}

TEST_CASE("a launcher with a broken PMI", "[environment]") {
  const Environment environment{{"PMI_FD", "1000000"}};
  CHECK_THAT(refusal(), Contains("(PMI_FD) is not its socket") && Contains("RONDO_RENDEZVOUS"));
  ::unsetenv("PMI_FD");
  ::setenv("PMI_PORT", "nowhere", 1);
  CHECK_THAT(refusal(), Contains("PMI_PORT is not HOST:PORT"));

  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  base::FileDescriptor near(ends[0]);
  const base::FileDescriptor far(ends[1]);
  ::setenv("PMI_FD", std::to_string(far.get()).c_str(), 1);
  CHECK_THAT(refusal(milliseconds{1}), Contains("did not answer in time"));
  const auto say = [&](const std::string& text) {
    CHECK(::send(near.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  };
  say("cmd=response_to_init rc=-1\n");
  CHECK_THAT(refusal(), Contains("did not answer with response_to_init"));
  say("cmd=response_to_init rc=0\ncmd=my_kvsname\n");
  CHECK_THAT(refusal(), Contains("its answer has no kvsname"));
  say(std::string(20'000, 'x'));
  CHECK_THAT(refusal(), Contains("it sent a line without an end"));
  near.reset();
  CHECK_THAT(refusal(),
             Contains("An earlier program of this rank, or MPI_Finalize, may have ended"));
}

TEST_CASE("a launcher of several hosts that carries text needs no variable", "[environment]") {
  const Environment environment{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "9"}};
  using settings::ExchangeKind;
  CHECK(rendezvous::resolve_place(Options{}).by_launcher == ExchangeKind::pmi);
  // The launcher does not know ranks that the program numbers itself.
  Options reversed;
  reversed.rank = 2;
  CHECK_THAT(message_of(Errc::invalid_argument, reversed), Contains("RONDO_RENDEZVOUS"));
  ::setenv("RONDO_RENDEZVOUS", "tcp://a:1", 1);
  CHECK(rendezvous::resolve_place(Options{}).by_launcher == ExchangeKind::none);
  ::unsetenv("RONDO_RENDEZVOUS");
  ::setenv("MPI_LOCALNRANKS", "4", 1);
  CHECK(rendezvous::resolve_place(Options{}).by_launcher == ExchangeKind::none);
}

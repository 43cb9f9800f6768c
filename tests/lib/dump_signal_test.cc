// SPDX-License-Identifier: Apache-2.0
//
// Signals that ask for dumps: each listing is called once, the program's handlers stay in force,
// and listings come and go at any time.
#include "lib/recorder/signal.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/error.h>

#include "catch.h"
#include "environment_guard.h"
#include "issues/forked_ranks.h"

using namespace rondo;
using namespace std::chrono_literals;
using recorder::SignalListing;

namespace {

// Counts its calls.
class Called {
 public:
  std::function<void()> function() {
    return [this] {
      ++count_;
      calls_.release();
    };
  }
  bool wait() { return calls_.try_acquire_for(20s); }
  bool comes_again() { return calls_.try_acquire_for(20ms); }
  int count() const { return count_; }

 private:
  std::atomic<int> count_{0};
  std::counting_semaphore<> calls_{0};
};

std::atomic<int> plain_calls{0}, informed_calls{0};
void plain(int number) {
  plain_calls += number == SIGUSR2;
  errno = EBADF;
}
void informed(int number, siginfo_t* info, void*) {
  informed_calls += number == SIGUSR2 && info->si_pid == ::getpid();
}

struct sigaction action_now() {
  struct sigaction now {};
  ::sigaction(SIGUSR2, nullptr, &now);
  return now;
}

// Installs a handler, and at the end the one before.
class Installed {
 public:
  explicit Installed(void (*handler)(int), int flags = 0) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    ::sigaction(SIGUSR2, &action, &before_);
  }
  Installed(void (*handler)(int, siginfo_t*, void*), int flags) {
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = flags | SA_SIGINFO;
    ::sigaction(SIGUSR2, &action, &before_);
  }
  Installed(const Installed&) = delete;
  Installed& operator=(const Installed&) = delete;
  ~Installed() { ::sigaction(SIGUSR2, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

}  // namespace

TEST_CASE("dump signal: each listing is called once for a signal", "[signal]") {
  Called first, second, third;
  const SignalListing one(SIGUSR2, first.function());
  for (int signals = 1; signals <= 3; ++signals) {
    const SignalListing two(SIGUSR2, second.function());
    const SignalListing throws(SIGUSR2, [] { throw std::runtime_error("no memory"); });
    const SignalListing last(SIGUSR2, third.function());
    ::raise(SIGUSR2);
    REQUIRE((first.wait() && second.wait() && third.wait()));
    CHECK(first.count() == signals);
    CHECK(second.count() == signals);
  }
}

TEST_CASE("dump signal: a handler that was there is called and put back", "[signal]") {
  plain_calls = informed_calls = 0;
  const bool restarts = GENERATE(false, true);
  const int flags = restarts ? SA_RESTART : 0;
  const int kind = GENERATE(0, 1, 2, 3);
  std::optional<Installed> installed;
  if (kind == 0) installed.emplace(SIG_DFL, flags);
  if (kind == 1) installed.emplace(SIG_IGN, flags);
  if (kind == 2) installed.emplace(&plain, flags);
  if (kind == 3) installed.emplace(&informed, flags);
  const struct sigaction before = action_now();
  for (int round = 1; round <= 2; ++round) {
    Called called;
    const SignalListing listing(SIGUSR2, called.function());
    CHECK(((action_now().sa_flags & SA_RESTART) != 0) == (restarts || kind < 2));
    errno = ENOENT;
    ::raise(SIGUSR2);
    CHECK(errno == ENOENT);
    CHECK(plain_calls == (kind == 2 ? round : 0));
    CHECK(informed_calls == (kind == 3 ? round : 0));
    CHECK(called.wait());
  }
  CHECK(action_now().sa_handler == before.sa_handler);
  CHECK(action_now().sa_flags == before.sa_flags);
}

TEST_CASE("dump signal: a handler that comes later stays, and may call ours", "[signal]") {
  static struct sigaction ours;
  static std::atomic<int> calls{0};
  calls = 0;
  const Installed ignored(SIG_IGN);
  Called called;
  std::optional<SignalListing> listing(std::in_place, SIGUSR2, called.function());
  ours = action_now();
  const Installed later(
      [](int number, siginfo_t* info, void* context) {
        ++calls;
        ours.sa_sigaction(number, info, context);
      },
      0);
  const struct sigaction program = action_now();
  for (int round = 1; round <= 2; ++round) {
    ::raise(SIGUSR2);
    CHECK(calls == round);
    CHECK(called.wait());
    listing.reset();
    CHECK(action_now().sa_sigaction == program.sa_sigaction);
    listing.emplace(SIGUSR2, called.function());
  }
}

TEST_CASE("dump signal: a listing ends while functions are called", "[signal]") {
  Called second;
  std::binary_semaphore begun{0}, release{0};
  std::atomic<bool> has_ended{false};
  std::optional<SignalListing> one(std::in_place, SIGUSR2, [&] {
    begun.release();
    static_cast<void>(release.try_acquire_for(20s));
    has_ended = true;
  });
  std::optional<SignalListing> two(std::in_place, SIGUSR2, second.function());
  ::raise(SIGUSR2);
  REQUIRE(begun.try_acquire_for(20s));
  two.reset();  // does not wait for the first
  CHECK_FALSE(has_ended);
  std::future<bool> waited = std::async(std::launch::async, [&] {
    one.reset();
    return has_ended.load();
  });
  CHECK(waited.wait_for(20ms) == std::future_status::timeout);
  release.release();
  CHECK(waited.get());
  CHECK(second.count() == 0);
}

TEST_CASE("dump signal: threads list and end at once", "[signal]") {
  const Installed ignored(SIG_IGN);
  std::vector<std::future<int>> threads;
  for (int i = 0; i < 3; ++i)
    threads.push_back(std::async(std::launch::async, [] {
      int missed = 0;
      for (int round = 0; round < 100; ++round) {
        Called called;
        const SignalListing listing(SIGUSR2, called.function());
        ::raise(SIGUSR2);
        missed += !called.wait();
      }
      return missed;
    }));
  for (auto& thread : threads) CHECK(thread.get() == 0);
  CHECK(action_now().sa_handler == SIG_IGN);
}

TEST_CASE("dump signal: a child does not ask its parent, and may ask itself", "[signal]") {
  const bool by_fork = GENERATE(true, false);  // else without the handlers of fork()
  if (!by_fork && testing::under_tsan) return;
  const Installed ignored(SIG_IGN);
  Called called;
  const SignalListing listing(SIGUSR2, called.function());
  const auto child_does = [&] {
    ::raise(SIGUSR2);
    // A copy has locks of threads that are not there. TSan allows no new thread in a child.
    if (!by_fork || testing::under_tsan) return true;
    Called own;
    const SignalListing other(SIGUSR2, own.function());
    ::raise(SIGUSR2);
    return own.wait();
  };
  if (by_fork) {
    CHECK(testing::status_of(testing::start_process(child_does)) == 0);
  } else {
    const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    if (child == 0) ::_exit(child_does() ? 0 : 1);
    CHECK(testing::status_of(child) == 0);
  }
  CHECK_FALSE(called.comes_again());
  ::raise(SIGUSR2);
  CHECK(called.wait());
}

TEST_CASE("dump signal: the variable", "[signal][environment]") {
  using Row = std::pair<const char*, std::optional<int>>;
  const auto row =
      GENERATE(Row{"", {}}, Row{"USR1", SIGUSR1}, Row{"USR2", SIGUSR2}, Row{"SIGUSR2", SIGUSR2});
  const tests::Environment environment{{"RONDO_DUMP_SIGNAL", row.first}};
  CHECK(recorder::signal_from_environment() == row.second);
  for (const char* wrong : {"TERM", "SIG", "12", "usr2", "USR3", "SIGSIGUSR1"}) {
    ::setenv("RONDO_DUMP_SIGNAL", wrong, 1);
    try {
      static_cast<void>(recorder::signal_from_environment());
      FAIL(wrong);
    } catch (const Error& error) {
      CHECK(error.code() == Errc::invalid_argument);
      CHECK(std::string(error.what()) ==
            std::string("RONDO_DUMP_SIGNAL is '") + wrong + "': possible are USR1 and USR2");
    }
  }
}

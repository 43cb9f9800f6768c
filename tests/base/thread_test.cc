// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include "base/log.h"
#include "catch.h"

using namespace rondo;

TEST_CASE("threads of the library take no signals", "[thread]") {
  sigset_t before, inside, after;
  REQUIRE(::pthread_sigmask(SIG_SETMASK, nullptr, &before) == 0);
  base::start_thread("rondo-test", [&] {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &inside);
  }).join();
  REQUIRE(::pthread_sigmask(SIG_SETMASK, nullptr, &after) == 0);
  for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1, SIGPROF}) {
    CHECK(sigismember(&inside, signal) == 1);
    CHECK(sigismember(&after, signal) == sigismember(&before, signal));
  }
}

TEST_CASE("lines that strangers cause are counted once there are many", "[log]") {
  base::QuotaLog log;
  base::TimePoint now = base::Clock::now();
  for (int i = 0; i < 10; ++i) CHECK(log.admit(now) == 0);
  for (int i = 0; i < 7; ++i) CHECK_FALSE(log.admit(now + std::chrono::seconds{i}));
  now += std::chrono::seconds{60};
  CHECK(log.admit(now) == 7);
  CHECK_FALSE(log.admit(now));
  CHECK(log.admit(now + std::chrono::hours{1}) == 1);
  CHECK(log.admit(now + std::chrono::hours{2}) == 0);
}

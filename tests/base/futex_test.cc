// SPDX-License-Identifier: Apache-2.0
#include "base/futex.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <thread>

#include "catch.h"

using namespace rondo;

TEST_CASE("who has not seen the last wake-up does not sleep", "[futex]") {
  base::WakeWord word{0};
  const std::uint32_t seen = word.load();
  base::wake_all(word);
  CHECK(word.load() != seen);
  base::sleep_on(word, seen, std::chrono::hours{24 * 365});
}

TEST_CASE("a sleep ends at its limit", "[futex]") {
  base::WakeWord word{7};
  const base::TimePoint begin = base::Clock::now();
  base::sleep_on(word, 7, nanoseconds{-5});
  while (base::Clock::now() - begin < milliseconds{2}) base::sleep_on(word, 7, milliseconds{1});
  CHECK(word.load() == 7);
}

TEST_CASE("a wake-up ends the sleeps of other threads and of other processes", "[futex]") {
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto& word = *static_cast<base::WakeWord*>(page);
  const auto sleep = [&] {
    while (word.load() == 0) base::sleep_on(word, 0, std::chrono::hours{1});
  };
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    sleep();
    ::_exit(0);
  }
  std::thread thread(sleep);
  base::wake_all(word);
  thread.join();
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  ::munmap(page, 4096);
}

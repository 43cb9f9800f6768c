// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/pool.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "catch.h"

namespace rondo::layer {
namespace {

TEST_CASE("a pool calls every task once and has ended all of them when it returns") {
  Pool pool;
  for (int round = 0; round < 200; ++round) {
    const int threads = round % 6;  // 0 counts as 1
    const auto tasks = static_cast<std::size_t>(round % 37);
    std::vector<int> calls(tasks);
    auto task = [&](std::size_t i) { ++calls[i]; };
    pool.run(threads, tasks, task);
    CHECK(calls == std::vector<int>(tasks, 1));
  }
}

TEST_CASE("a pool of several threads works on tasks side by side") {
  Pool pool;
  // Each of the three tasks ends only when all three have begun.
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  bool together = true;
  auto task = [&](std::size_t) {
    std::unique_lock lock(mutex);
    ++begun;
    changed.notify_all();
    if (!changed.wait_for(lock, std::chrono::seconds{60}, [&] { return begun == 3; }))
      together = false;
  };
  pool.run(3, 3, task);
  CHECK(together);
}

}  // namespace
}  // namespace rondo::layer

// SPDX-License-Identifier: Apache-2.0
// A long wait gives one warning on standard error, long before its deadline. It says which rank
// waits for which, and in what operation. Here rank 0 waits in the other lane, and goes on once it
// has read the warning.
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "catch.h"
#include "support/ranks.h"
#include "support/standard_error.h"

namespace rondo::testing {
TEST_CASE("a wait that takes long is told once, across lanes, and the operation goes on") {
  const char* const patience = GENERATE("0.3", "0");
  const bool told = std::string(patience) != "0";
  ::setenv("RONDO_WARN_AFTER", patience, 1);
  const StandardError error;
  Setup setup;
  setup.over = GENERATE(Over::tcp, Over::shm);
  setup.size = 3;
  setup.options.deadline = std::chrono::seconds{100};
  const std::string line =
      "urgent all_reduce #1 \"metrics\" (1 f32 sum), which ranks 1, 2 have not called; ranks 1, 2 "
      "have "
      "waited for ";
  std::barrier called(3);
  run_communicators(setup, "a long wait", [&](Communicator& c, int rank) {
    float value = 1, sum = 0, metric = 1, metrics = 0;
    OpOptions urgent;
    urgent.priority = Priority::urgent;
    urgent.tag = "metrics";
    const auto add = [&] {
      return c.all_reduce({&value, 1, DType::f32}, {&sum, 1, DType::f32}, ReduceOp::sum);
    };
    const auto count = [&] {
      return c.all_reduce({&metric, 1, DType::f32}, {&metrics, 1, DType::f32}, ReduceOp::sum,
                          urgent);
    };
    if (rank == 0) {
      called.arrive_and_wait();
      Work waiting = count();
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{told ? 60 : 2};
      while (times(error.text(), line) == 0 && std::chrono::steady_clock::now() < until)
        waiting.wait_for(std::chrono::milliseconds{100});
      add().wait();
      waiting.wait();
    } else {
      Work first = add();
      called.arrive_and_wait();
      first.wait();
      count().wait();
    }
    expect(sum == 3 && metrics == 3, "the sums are wrong");
  });
  ::unsetenv("RONDO_WARN_AFTER");
  INFO(error.text());
  CHECK(times(error.text(), line) == (told ? 1 : 0));
  CHECK(times(error.text(), "rondo warning: rank 0 has waited for ") == (told ? 1 : 0));
}

// Here only a message is in flight, no collective operation.
TEST_CASE("a message that takes long is told as well") {
  ::setenv("RONDO_WARN_AFTER", "0.3", 1);
  const StandardError error;
  Setup setup;
  setup.over = GENERATE(Over::tcp, Over::shm);
  setup.options.deadline = std::chrono::seconds{100};
  const std::string line = " s in receive #1 \"answer\" (1 f32 from rank 1, tag 3) for rank 1";
  run_communicators(setup, "a long message", [&](Communicator& c, int rank) {
    float value = 1;
    OpOptions options;
    options.tag = "answer";
    if (rank == 0) return c.receive({&value, 1, DType::f32}, 1, 3, options).wait();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    while (times(error.text(), line) == 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
    c.send({&value, 1, DType::f32}, 0, 3, options).wait();
  });
  ::unsetenv("RONDO_WARN_AFTER");
  INFO(error.text());
  CHECK(times(error.text(), line) == 1);
  CHECK(times(error.text(), "rondo warning: rank 0 has waited for ") == 1);
}

}  // namespace rondo::testing

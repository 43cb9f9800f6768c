// SPDX-License-Identifier: Apache-2.0
// Operations on the same memory run one after the other, also in different lanes. In each case the
// second operation would overtake the first if it could: rank 0 calls it before the first one, and
// gives it time to end.
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

// Too many elements to travel with the posted call.
constexpr std::size_t count = std::size_t{1} << 18;
constexpr std::chrono::milliseconds chance{300};

Buffer all_of(std::vector<float>& values) {
  return {values.data(), values.size(), DType::f32};
}

OpOptions in(Priority lane) {
  OpOptions options;
  options.priority = lane;
  return options;
}
// The lanes of the two operations.
struct Lanes {
  Priority first = Priority::bulk, second = Priority::urgent;
};

void expect_exactly(const std::vector<float>& values, float wanted, const std::string& what) {
  for (const float value : values)
    expect(value == wanted, [&] {
      return what + ": " + std::to_string(value) + " instead of " + std::to_string(wanted);
    });
}

// Runs on rank 0, where the second operation has no reason to wait. So it ends in that time only if
// it does not wait for the first one on the other rank.
void call_second_then_first(Work second, const std::function<Work()>& first) {
  expect(!second.wait_for(chance),
         "the second operation has ended before the first was called by all");
  first().wait();
  second.wait();
}

void read_after_write(Communicator& c, Lanes lanes = {}) {
  std::vector<float> shared(count, 1), out(count), own(count, 5);
  if (c.rank() == 0)
    return call_second_then_first(
        c.all_reduce(all_of(own), all_of(out), ReduceOp::sum, in(lanes.second)),
        [&] { return c.broadcast(all_of(shared), all_of(shared), 0, in(lanes.first)); });
  shared.assign(count, 7);
  Work first = c.broadcast(all_of(shared), all_of(shared), 0, in(lanes.first));
  Work second = c.all_reduce(all_of(shared), all_of(out), ReduceOp::sum, in(lanes.second));
  second.wait();
  first.wait();
  expect_exactly(out, 6, "a sum of what was received before");
}

void write_after_read(Communicator& c, Lanes lanes = {}) {
  std::vector<float> shared(count, 1), out(count), own(count, 5);
  if (c.rank() == 0) {
    call_second_then_first(c.broadcast(all_of(own), all_of(own), 0, in(lanes.second)), [&] {
      return c.reduce(all_of(shared), all_of(out), ReduceOp::sum, 0, in(lanes.first));
    });
    return expect_exactly(out, 2, "a sum of what was there before");
  }
  Work first = c.reduce(all_of(shared), all_of(out), ReduceOp::sum, 0, in(lanes.first));
  Work second = c.broadcast(all_of(shared), all_of(shared), 0, in(lanes.second));
  second.wait();
  first.wait();
}

void write_after_write(Communicator& c, Lanes lanes = {}) {
  std::vector<float> shared(count, 1), own(count, 5);
  if (c.rank() == 0)
    return call_second_then_first(c.broadcast(all_of(own), all_of(own), 0, in(lanes.second)), [&] {
      return c.broadcast(all_of(shared), all_of(shared), 0, in(lanes.first));
    });
  Work first = c.broadcast(all_of(shared), all_of(shared), 0, in(lanes.first));
  Work second = c.broadcast(all_of(shared), all_of(shared), 0, in(lanes.second));
  second.wait();
  first.wait();
  expect_exactly(shared, 5, "what was received last");
}

}  // namespace

TEST_CASE("operations on the same memory follow each other from lane to lane") {
  Setup setup;
  setup.over = GENERATE(Over::mem, Over::tcp, Over::shm);
  run_communicators(setup, "read after write", [](Communicator& c, int) { read_after_write(c); });
  run_communicators(setup, "write after read", [](Communicator& c, int) { write_after_read(c); });
  run_communicators(setup, "write after write", [](Communicator& c, int) { write_after_write(c); });
  if (setup.over != Over::mem) return;
  run_communicators(setup, "bulk after urgent", [](Communicator& c, int) {
    write_after_write(c, {Priority::urgent, Priority::bulk});
  });
}

}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
//
// A scheduled algorithm on memory from Communicator::allocate: its large frames go by reference.
#include <algorithm>
#include <span>
#include <string>

#include "catch.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

// Reuses its buffers for many calls in a row, so that a frame which is read too late gets the
// values of another call.
void call_in_a_row(Communicator& c, int rank, std::size_t count) {
  const auto size = static_cast<std::size_t>(c.size());
  const Memory in_memory = c.allocate(count * sizeof(float)),
               out_memory = c.allocate(count * sizeof(float)),
               all_memory = c.allocate(count * size * sizeof(float));
  const std::span in(static_cast<float*>(in_memory.data()), count),
      out(static_cast<float*>(out_memory.data()), count),
      all(static_cast<float*>(all_memory.data()), count * size);
  const auto own = [](std::size_t of, std::size_t i, int call) {
    return static_cast<float>((i * 7 + of * 13 + static_cast<std::size_t>(call)) % 1000);
  };
  for (int call = 0; call < 6; ++call) {
    const bool in_place = call % 3 == 2;
    const std::span result = in_place ? in : out;
    for (std::size_t i = 0; i < count; ++i) in[i] = own(static_cast<std::size_t>(rank), i, call);
    Work gathering = c.all_gather(buffer_of(in), buffer_of(all));
    if (in_place) gathering.wait();
    Work summing = c.all_reduce(buffer_of(in), buffer_of(result), ReduceOp::sum);
    gathering.wait();
    summing.wait();
    bool gathered = true, summed = true;
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (std::size_t of = 0; of < size; ++of) {
        sum += own(of, i, call);
        gathered = gathered && all[of * count + i] == own(of, i, call);
      }
      summed = summed && result[i] == sum;
    }
    expect(gathered, "all_gather " + std::to_string(call));
    expect(summed, "all_reduce " + std::to_string(call));
  }
}

}  // namespace

TEST_CASE("a ring on allocated memory, over shared memory") {
  Setup setup;
  setup.over = Over::shm;
  setup.size = GENERATE(2, 3, 5);
  setup.options.algorithm = "ring";
  CAPTURE(setup.size);
  for (const std::size_t count : {1'000'003, 100'000})
    CHECK_NOTHROW(run_communicators(
        setup, "allocated", [count](Communicator& c, int rank) { call_in_a_row(c, rank, count); }));
}

}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
//
// Measures processor time where docs/reference/waiting.md promises that threads sleep: in
// communicators that have nothing to do, and in ranks that wait for one that comes late.
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "support/effort.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A machine on which much else runs may delay a thread that is about to sleep. The best attempt
// counts.
constexpr int attempts = 3;

// User and system time of all threads of this program.
microseconds processor_time() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return std::chrono::seconds{time.tv_sec} + microseconds{time.tv_usec};
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

microseconds processor_time_of_pause(milliseconds pause) {
  const microseconds before = processor_time();
  std::this_thread::sleep_for(pause);
  return processor_time() - before;
}

// Runs some thousand operations in both lanes. No rank waits for the last ones before they have
// ended. So background threads have driven them, and look most often.
void run_traffic(Communicator& communicator) {
  constexpr std::size_t counts[] = {2, 3000, 100'000};
  std::vector<float> values(counts[2], 1.0F), urgent(counts[0], 1.0F);
  OpOptions at_once;
  at_once.priority = Priority::urgent;
  const auto round = [&](std::size_t count, milliseconds pause) {
    const Buffer large{values.data(), count, DType::f32},
        small{urgent.data(), urgent.size(), DType::f32};
    Work works[] = {communicator.all_reduce(large, large, ReduceOp::max),
                    communicator.all_reduce(small, small, ReduceOp::max, at_once)};
    if (pause > milliseconds{}) std::this_thread::sleep_for(pause);
    for (Work& work : works) work.wait();
  };
  for (int i = 0; i < 100; ++i) round(counts[2], milliseconds{});
  for (int i = 0; i < 1000; ++i) round(counts[i % 2], milliseconds{});
  for (int i = 0; i < 30; ++i) round(counts[i % 3], milliseconds{5});
}

Setup setup_of(Over over, int size, const std::string& wait) {
  Setup setup;
  setup.over = over;
  setup.size = size;
  setup.options.wait = wait;
  return setup;
}

// Returns the least that a rank but the last used in an attempt, on average over these ranks. They
// wait in an all-reduce, to which the last rank comes late.
microseconds used_by_waiting_rank(const Setup& setup, milliseconds late, microseconds limit) {
  microseconds least = microseconds::max();
  std::barrier together(setup.size);
  run_communicators(setup, "waiting", [&](Communicator& c, int rank) {
    float value = 1;
    const Buffer both{&value, 1, DType::f32};
    c.all_reduce(both, both, ReduceOp::max).wait();
    for (int attempt = 0; attempt < attempts; ++attempt) {
      together.arrive_and_wait();
      if (rank == setup.size - 1)
        least = std::min(least, processor_time_of_pause(late) / (setup.size - 1));
      c.all_reduce(both, both, ReduceOp::max).wait();
      together.arrive_and_wait();
      if (least < limit) break;
    }
  });
  return least;
}

}  // namespace

TEST_CASE("an idle communicator uses no processor, from the end of its traffic on", "[times]") {
  constexpr Over all[] = {Over::mem, Over::tcp, Over::shm};
  const Over over = all[GENERATE(0, 1, 2)];
  const int size = GENERATE(2, 4);
  // It pauses, and no other test may run meanwhile.
  if (!whole_set() && over != all[test_seed() % 3]) return;
  constexpr milliseconds pause{1000};
  constexpr microseconds limit = pause / 200;
  microseconds least = microseconds::max();
  std::barrier together(size);
  run_communicators(setup_of(over, size, "auto"), "idle", [&](Communicator& c, int rank) {
    for (int attempt = 0; attempt < attempts; ++attempt) {
      run_traffic(c);
      together.arrive_and_wait();
      if (rank == 0) least = std::min(least, processor_time_of_pause(pause));
      together.arrive_and_wait();
      if (least < limit) break;
    }
  });
  INFO(name_of(over) << ", " << size << " ranks: " << least.count() << " us of 1 s");
  CHECK(least < limit);
}

TEST_CASE("a rank that waits for a late one uses less than 1 % of the wait", "[times]") {
  struct Row {
    Over over;
    int size;
    const char* wait;
  };
  const Row row = GENERATE(from_range(in_turn<Row>({{Over::mem, 3, "auto"},
                                                    {Over::tcp, 2, "auto"},
                                                    {Over::tcp, 2, "sleep"},
                                                    {Over::shm, 2, "auto"},
                                                    {Over::shm, 2, "sleep"},
                                                    {Over::shm, 4, "auto"}})));
  const milliseconds late{whole_set() ? 10'000 : 3000};
  const microseconds limit = late / 100;
  const microseconds used =
      used_by_waiting_rank(setup_of(row.over, row.size, row.wait), late, limit);
  INFO(name_of(row.over) << ", " << row.size << " ranks, RONDO_WAIT=" << row.wait << ": "
                         << used.count() << " us of " << late.count() << " ms");
  CHECK(used < limit);
}

// It also shows that the measurement above sees a rank that spins. Over shared memory a rank whose
// peer was last seen on its core yields, and other programs may take the time.
TEST_CASE("a rank that waits with RONDO_WAIT=spin keeps its core busy", "[times]") {
  constexpr milliseconds late{300};
  const microseconds used =
      used_by_waiting_rank(setup_of(Over::tcp, 2, "spin"), late, microseconds{});
  INFO(used.count() << " us of 300 ms");
  CHECK(used > late / 10);
}

}  // namespace rondo::testing

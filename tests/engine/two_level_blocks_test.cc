// SPDX-License-Identifier: Apache-2.0
//
// Tests two-level operations on blocks whose ranks of a host share memory: all_gather,
// reduce_scatter, and both with counts. tests/table runs every type.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "catch.h"
#include "support/effort.h"
#include "support/trial.h"
#include "tests/engine/two_level_ranks.h"

namespace rondo::testing {
namespace {

constexpr Collective operations[] = {Collective::all_gather, Collective::reduce_scatter,
                                     Collective::all_gather_v, Collective::reduce_scatter_v};
const std::vector<std::vector<int>> layouts{
    {0, 0, 1, 1},          {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1},   {0, 0, 0, 1},
    {0, 1, 1, 1, 2, 2, 1}, {2, 0, 2, 1, 1, 0, 2, 2}, {0, 0, 1, 2, 2}};

void finish(std::deque<Trial>& trials) {
  trials.front().work().wait();
  const std::string problem = trials.front().problem();
  expect(problem.empty(), problem);
  trials.pop_front();
}

// Several calls are under way at any time, all_reduces and reduces between the others.
void run_cases(Communicator& c, const std::vector<Case>& cases) {
  std::deque<Trial> trials;
  for (const Case& what : cases) {
    if (trials.size() == 5) finish(trials);
    trials.emplace_back(what, c.rank(), c.size()).start(c);
  }
  while (!trials.empty()) finish(trials);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::size_t count : {0u, 1u, 5u, 1003u, few_cases() ? 3'011u : 20'011u})
    for (const DType type : {DType::f32, DType::bf16, DType::i32})
      for (const bool in_place : {false, true})
        for (const Collective operation : operations) {
          const Priority priority = cases.size() % 3 == 0 ? Priority::urgent : Priority::bulk;
          const ReduceOp op = type != DType::i32 && in_place ? ReduceOp::mean : ReduceOp::sum;
          cases.push_back({operation, type, op, count, 0, in_place, {}, priority});
          if (cases.size() % 7 == 0)
            cases.push_back({Collective::all_reduce, type, op, count, 0, in_place, {}, priority});
          if (cases.size() % 11 == 0)
            cases.push_back({Collective::reduce, type, op, count, 1, in_place, {}, priority});
        }
  return cases;
}

TEST_CASE("two levels in shared memory: blocks on every layout of hosts") {
  const std::vector<int> hosts = GENERATE(from_range(layouts));
  const std::size_t segment_bytes = GENERATE(as<std::size_t>{}, 0, 4000, 100'000);
  if (few_cases() && segment_bytes == 100'000) return;
  Setup setup = setup_of(hosts, segment_bytes);
  if (segment_bytes == 4000) {
    setup.faults.capacity = 1000;
    setup.faults.delay = setup.faults.stall = 3;
  }
  const std::vector<Case> cases = all_cases();
  CHECK_NOTHROW(
      run_communicators(setup, "blocks", [&](Communicator& c, int) { run_cases(c, cases); }));
}

float given(int rank, std::size_t i) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 7 + i * 3) % 64);
}

void check_gathered(Communicator& c, Where where, bool in_place, std::size_t count) {
  const bool window = in_window(where, c.rank());
  const auto size = static_cast<std::size_t>(c.size()), own = static_cast<std::size_t>(c.rank());
  Floats in(c, window, in_place ? 0 : count), out(c, window, size * count);
  float* const block = in_place ? out.data() + own * count : in.data();
  for (std::size_t i = 0; i < count; ++i) block[i] = given(c.rank(), i);
  c.all_gather(in_place ? out.buffer(own * count, count) : in.buffer(), out.buffer()).wait();
  for (std::size_t i = 0; i < size * count; ++i)
    expect(out.data()[i] == given(static_cast<int>(i / count), i % count), [&] {
      return "element " + std::to_string(i) + " of blocks of " + std::to_string(count) + " differs";
    });
}

void check_scattered(Communicator& c, Where where, bool in_place, std::size_t count) {
  const bool window = in_window(where, c.rank());
  const auto size = static_cast<std::size_t>(c.size()), own = static_cast<std::size_t>(c.rank());
  Floats in(c, window, size * count), out(c, window, in_place ? 0 : count);
  for (std::size_t i = 0; i < size * count; ++i) in.data()[i] = given(c.rank(), i);
  const Buffer to = in_place ? in.buffer(own * count, count) : out.buffer();
  c.reduce_scatter(in.buffer(), to, ReduceOp::sum).wait();
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < c.size(); ++rank) sum += given(rank, own * count + i);
    expect(static_cast<const float*>(to.data)[i] == sum, [&] {
      return "element " + std::to_string(i) + " of " + std::to_string(count) + " differs";
    });
  }
  for (std::size_t i = 0; !in_place && i < size * count; ++i)
    expect(in.data()[i] == given(c.rank(), i), "the input has changed");
}

TEST_CASE("two levels in shared memory: blocks in windows, elsewhere and mixed") {
  const std::vector<int> hosts = GENERATE(from_range(layouts));
  const int rounds = few_cases() ? 2 : 3;  // extents are mapped while calls run
  CHECK_NOTHROW(run_communicators(setup_of(hosts, 100'000), "windows", [&](Communicator& c, int) {
    for (const Where where : {Where::elsewhere, Where::windows, Where::mixed})
      for (const bool in_place : {false, true})
        for (const std::size_t count : {1u, 1003u, few_cases() ? 5'011u : 30'011u})
          for (int round = 0; round < rounds; ++round) {
            check_gathered(c, where, in_place, count);
            check_scattered(c, where, in_place, count);
          }
  }));
}

// Each block takes H - 1 hops between hosts, and none inside them.
TEST_CASE("two levels in shared memory: frames of blocks go between hosts only") {
  const std::vector<int> hosts{0, 0, 0, 1, 1, 1, 2, 2};
  std::atomic<std::uint64_t> sent{0};
  CHECK_NOTHROW(
      run_communicators(setup_of(hosts, 1'000'000), "frames", [&](Communicator& c, int rank) {
        const std::uint64_t before = c.statistics().frames_sent;
        Trial::run(c, {Collective::all_gather, DType::f32, ReduceOp::sum, 1000});
        const std::uint64_t gathered = c.statistics().frames_sent;
        // Its own block, and on the host with two ranks the first has two rails.
        if (rank == 0) expect(gathered - before == 2, "the first rank sent other frames");
        if (rank == 6) expect(gathered - before == 3, "the rank with two rails sent other frames");
        Trial::run(c, {Collective::reduce_scatter, DType::f32, ReduceOp::sum, 1000});
        sent += c.statistics().frames_sent - before;
      }));
  CHECK(sent == 2 * 8 * 2);
}

// f16 ends at 65,504: the sum of the host must be made smaller before it is stored.
TEST_CASE("two levels in shared memory: a scattered mean of large f16 does not overflow") {
  CHECK_NOTHROW(run_communicators(setup_of({0, 0, 0, 1}), "f16", [&](Communicator& c, int) {
    constexpr std::uint16_t large = 0x7b00;  // 57,344
    for (const std::size_t count : {3u, 30'000u}) {
      std::vector<std::uint16_t> in(4 * count, large), out(count);
      c.reduce_scatter({in.data(), in.size(), DType::f16}, {out.data(), count, DType::f16},
                       ReduceOp::mean)
          .wait();
      expect(std::ranges::count(out, large) == static_cast<std::ptrdiff_t>(count),
             "the mean differs");
    }
  }));
}

// What rank `odd` calls in place of the others' all_gather or reduce_scatter of 100.
enum class Odd { count, kind, all_reduce };

void call(Communicator& c, Collective operation, std::size_t count) {
  std::vector<float> whole(count * static_cast<std::size_t>(c.size())), block(count);
  if (operation == Collective::all_gather)
    c.all_gather(buffer_of(block), buffer_of(whole)).wait();
  else if (operation == Collective::reduce_scatter)
    c.reduce_scatter(buffer_of(whole), buffer_of(block), ReduceOp::sum).wait();
  else
    c.all_reduce(buffer_of(block), buffer_of(block), ReduceOp::sum).wait();
}

TEST_CASE("two levels in shared memory: different calls on blocks get one mismatch") {
  const Collective operation = GENERATE(Collective::all_gather, Collective::reduce_scatter);
  const Odd how = GENERATE(Odd::count, Odd::kind, Odd::all_reduce);
  const int odd = GENERATE(0, 1, 3);
  const Collective other =
      operation == Collective::all_gather ? Collective::reduce_scatter : Collective::all_gather;
  const Collective theirs = how == Odd::count  ? operation
                            : how == Odd::kind ? other
                                               : Collective::all_reduce;
  const std::size_t count = how == Odd::count ? 50'000 : 100;
  std::vector<std::string> messages(4);
  CHECK_NOTHROW(
      run_communicators(setup_of({0, 0, 1, 1}), "mismatch", [&](Communicator& c, int rank) {
        try {
          call(c, rank == odd ? theirs : operation, rank == odd ? count : 100);
        } catch (const Error& error) {
          expect(error.code() == Errc::mismatch, error.what());
          messages[static_cast<std::size_t>(rank)] = error.what();
        }
      }));
  for (const std::string& message : messages) {
    INFO(message);
    CHECK(message.find(std::string(name_of(operation)) + " #1 (100 f32") != std::string::npos);
    CHECK(message.find(std::string(name_of(theirs)) + " #1 (" + std::to_string(count) + " f32") !=
          std::string::npos);
  }
}

// Ranks that sum do not see the posts of those that copy, and each rank meets its own like on the
// other host. So no frame and no post shows the difference.
TEST_CASE("two levels in shared memory: a host that sums and copies at once gets a mismatch") {
  std::vector<std::string> messages(4);
  CHECK_NOTHROW(run_communicators(setup_of({0, 0, 1, 1}), "both", [&](Communicator& c, int rank) {
    try {
      call(c, rank % 2 == 0 ? Collective::reduce_scatter : Collective::all_gather, 100);
    } catch (const Error& error) {
      expect(error.code() == Errc::mismatch, error.what());
      messages[static_cast<std::size_t>(rank)] = error.what();
    }
  }));
  for (const std::string& message : messages) {
    INFO(message);
    CHECK(message.find("reduce_scatter #1 (100 f32") != std::string::npos);
    CHECK(message.find("all_gather #1 (100 f32") != std::string::npos);
  }
}

TEST_CASE("two levels in shared memory: a rank that is late with a block is named") {
  const Collective operation = GENERATE(Collective::all_gather, Collective::reduce_scatter);
  check_that_a_late_rank_is_named([operation](Communicator& c, const OpOptions& options) {
    std::vector<float> whole(4000), block(1000);
    if (operation == Collective::all_gather)
      c.all_gather(buffer_of(block), buffer_of(whole), options).wait();
    else
      c.reduce_scatter(buffer_of(whole), buffer_of(block), ReduceOp::sum, options).wait();
  });
}

// No rank may be done with its call before every rank has called. So no rank, on either host, ends
// its call while one has not begun.
TEST_CASE("two levels in shared memory: no call on blocks ends before all ranks have called") {
  const Collective operation = GENERATE(from_range(std::begin(operations), std::end(operations)));
  const std::size_t count = GENERATE(as<std::size_t>{}, 0, 40'000);
  const int late = GENERATE(0, 1, 3, 4);
  std::atomic<bool> called{false};
  CHECK_NOTHROW(
      run_communicators(setup_of({0, 0, 0, 1, 1}), "late", [&](Communicator& c, int rank) {
        if (rank == late) {
          std::this_thread::sleep_for(std::chrono::milliseconds{30});
          called = true;
        }
        Trial trial({operation, DType::f32, ReduceOp::sum, count}, rank, c.size());
        trial.start(c);
        trial.work().wait();
        expect(called, "rank " + std::to_string(rank) + " was done before rank " +
                           std::to_string(late) + " had called");
        expect(trial.problem().empty(), trial.problem());
      }));
}

// Rank `failing` aborts while calls of all ranks are under way. Every later call of the others
// fails with that cause, and no call that ended well has a wrong result.
TEST_CASE("two levels in shared memory: a rank that fails among calls on blocks") {
  const int failing = GENERATE(0, 1, 4);
  std::vector<std::string> messages(5);
  CHECK_NOTHROW(
      run_communicators(setup_of({0, 0, 0, 1, 1}, 20'000), "fails", [&](Communicator& c, int rank) {
        std::deque<Trial> trials;
        for (int i = 0; i < 40; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const Case what{operations[at % 4],
                          DType::f32,
                          ReduceOp::sum,
                          1000 + at * 500,
                          0,
                          i % 3 == 0,
                          {},
                          i % 5 == 0 ? Priority::urgent : Priority::bulk};
          trials.emplace_back(what, rank, c.size()).start(c);
          if (rank == failing && i == 25) {
            trials[10].work().wait();
            c.abort(make_error_code(Errc::aborted), "the disk is full");
          }
        }
        for (Trial& trial : trials) {
          std::string problem;
          try {
            trial.work().wait();
            problem = trial.problem();
          } catch (const Error& error) {
            messages[static_cast<std::size_t>(rank)] = error.what();
            problem = trial.damage();
          }
          expect(problem.empty(), problem);
        }
      }));
  for (const std::string& message : messages) {
    INFO(message);
    CHECK(message.find("rank " + std::to_string(failing) + " called abort: the disk is full") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace rondo::testing

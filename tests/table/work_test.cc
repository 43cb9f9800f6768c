// SPDX-License-Identifier: Apache-2.0
//
// Tests what a program may do with operations under way: wait late, in any order, with a limit or
// never, on both lanes.
#include <atomic>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "support/ranks.h"
#include "support/trial.h"
#include "support/values.h"

namespace rondo::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Setup setup_of(Over over, int size) {
  Setup setup;
  setup.over = over;
  setup.size = size;
  return setup;
}

void finish_trial(Trial& trial) {
  trial.work().wait();
  const std::string problem = trial.problem();
  expect(problem.empty(), problem);
}

// Lets one thread wait until others have given it a number of signals.
class Signal {
 public:
  void give() {
    const std::lock_guard lock(mutex_);
    ++given_;
    changed_.notify_all();
  }
  void await(int count = 1) {
    std::unique_lock lock(mutex_);
    expect(changed_.wait_for(lock, seconds{30}, [&] { return given_ >= count; }),
           "a signal did not come");
  }
  int given() {
    const std::lock_guard lock(mutex_);
    return given_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int given_ = 0;
};

TEST_CASE("operations in flight may be waited for in any order, on both lanes") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int size = GENERATE(2, 5);
  run_communicators(setup_of(over, size), "any order", [](Communicator& c, int rank) {
    for (std::uint64_t round = 0; round < 20; ++round) {
      std::vector<Trial> trials;
      trials.reserve(12);
      for (std::uint64_t i = 0; i < 12; ++i) {
        Case what;
        what.operation = some_operation(mixed(round, i));
        what.count = mixed(round, i, 1) % 5000;
        what.root = static_cast<int>(i) % c.size();
        what.priority = i % 3 == 0 ? Priority::urgent : Priority::bulk;
        trials.emplace_back(what, c.rank(), c.size()).start(c);
      }
      for (std::size_t done = 0; done < trials.size(); ++done)  // another order on every rank
        finish_trial(trials[(done * 5 + static_cast<std::size_t>(rank)) % trials.size()]);
    }
  });
}

TEST_CASE("an urgent operation does not wait for a bulk one that cannot go on") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  std::latch urgent_done(3);
  run_communicators(setup_of(over, 3), "lanes", [&](Communicator& c, int rank) {
    Trial bulk({Collective::all_reduce, DType::f32, ReduceOp::sum, 100'000}, rank, c.size());
    if (rank != 1) bulk.start(c);
    Trial::run(
        c,
        {Collective::all_reduce, DType::f32, ReduceOp::sum, 1000, 0, false, {}, Priority::urgent});
    if (rank != 1) expect(!bulk.work().done(), "done although rank 1 has not called it");
    urgent_done.arrive_and_wait();
    if (rank == 1) bulk.start(c);
    finish_trial(bulk);
  });
}

TEST_CASE("done, wait_for and on_done tell the truth") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  std::latch looked(1);
  run_communicators(setup_of(over, 2), "truth", [&](Communicator& c, int rank) {
    Trial trial({Collective::all_reduce, DType::i64, ReduceOp::sum, 100}, rank, 2);
    Signal ended;
    if (rank == 1) looked.wait();
    trial.start(c);
    trial.work().on_done([&](std::error_code code) {
      if (!code) ended.give();
    });
    if (rank == 0) {
      expect(!trial.work().wait_for(milliseconds{5}) && !trial.work().done(),
             "done before rank 1 has called it");
      expect(!trial.work().error() && trial.work().message().empty(), "an error while running");
      looked.count_down();
    }
    expect(trial.work().wait_for(seconds{20}) && trial.work().done(), "not done");
    expect(!trial.work().error() && trial.work().message().empty(), "an error after success");
    ended.await();
    expect(trial.problem().empty(), trial.problem());
    Trial next({Collective::barrier}, rank, 2);
    next.start(c);
    next.work().wait();
    next.work().on_done([&](std::error_code) { ended.give(); });
    expect(ended.given() == 2, "on_done after the end calls at once, and only once");
  });
}

// Rank 0's threads all use the same handle, and rank 1 calls only when they do.
TEST_CASE("several threads use one handle at once") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const bool fails = GENERATE(false, true);
  constexpr int waiters = 3;
  std::latch used(waiters + 1);
  run_communicators(setup_of(over, 2), "one handle", [&](Communicator& c, int rank) {
    std::vector<float> x(1000, 1);
    if (rank == 1) {
      used.wait();
      if (fails) return c.abort(Errc::corrupt, "the batch has no labels");
      return c.all_reduce(buffer_of(std::span(x)), buffer_of(std::span(x)), ReduceOp::sum).wait();
    }
    const Work work = c.all_reduce(buffer_of(std::span(x)), buffer_of(std::span(x)), ReduceOp::sum);
    std::atomic<int> ended{0};
    const auto use = [&](bool polls) {
      try {
        expect(!work.wait_for(milliseconds{1}), "done without rank 1");
        used.count_down();
        if (polls)
          while (!work.done()) std::this_thread::yield();
        work.wait();
        expect(!fails && !work.error(), "no error");
      } catch (const Error& error) {
        if (fails && error.code() == Errc::aborted && work.message() == error.what()) ++ended;
        return;
      }
      if (!fails && work.message().empty()) ++ended;
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < waiters; ++i) threads.emplace_back(use, false);
    threads.emplace_back(use, true);
    for (std::thread& thread : threads) thread.join();
    expect(ended == waiters + 1, "a thread saw another end");
  });
}

// Rank 1 aborts when rank 0's barrier has ended: an abort may overtake its last message.
TEST_CASE("a shared handle keeps the operation and its message") {
  Signal passed;
  run_communicators(setup_of(Over::mem, 2), "shared", [&](Communicator& c, int rank) {
    std::vector<float> x(10, 1);
    const Buffer all = buffer_of(std::span(x));
    if (rank == 1) {
      c.barrier().wait();
      passed.await();
      return c.abort(Errc::corrupt, "the batch has no labels");
    }
    Work work = c.all_reduce(all, all, ReduceOp::sum, {.priority = Priority::urgent});
    const Work other = work.share();
    std::vector<int> called;
    Signal ended;
    for (const int i : {1, 2, 3})
      work.on_done([&called, &ended, i](std::error_code) {
        called.push_back(i);
        if (i == 3) ended.give();
      });
    work = Work();
    other.leave();
    c.barrier().wait();
    passed.give();
    ended.await();
    other.leave();
    expect(called == std::vector<int>{1, 2, 3}, "the functions were called in another order");
    expect(other.error() == Errc::aborted, "the error is lost");
    expect(other.message().find("the batch has no labels") != std::string::npos,
           "the message is lost");
    expect(Work().share().done(), "a handle without an operation cannot be shared");
    Work().leave();
  });
}

TEST_CASE("operations end without anybody waiting") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  run_communicators(setup_of(over, 3), "background", [](Communicator& c, int rank) {
    std::vector<Trial> trials;
    trials.reserve(20);
    Signal ended;
    for (int i = 0; i < 20; ++i) {
      trials.emplace_back(Case{Collective::all_reduce, DType::f32, ReduceOp::sum, 20'000}, rank, 3)
          .start(c);
      trials.back().work().on_done([&](std::error_code) { ended.give(); });
    }
    ended.await(20);
    for (Trial& trial : trials) expect(trial.problem().empty(), trial.problem());
  });
}

TEST_CASE("an operation that is dropped still happens") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  run_communicators(setup_of(over, 4), "dropped", [](Communicator& c, int rank) {
    Trial trial({Collective::all_reduce, DType::i32, ReduceOp::max, 3000}, rank, 4);
    trial.start(c);
    Signal ended;
    trial.work().on_done([&](std::error_code code) {
      if (!code) ended.give();
    });
    trial.work() = Work();
    ended.await();  // not a later operation, which may end first
    expect(trial.problem().empty(), trial.problem());
  });
}

TEST_CASE("nobody leaves a barrier before all have come") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int size = GENERATE(2, 3, 5, 8);
  std::atomic<int> come = 0;
  run_communicators(setup_of(over, size), "barrier", [&](Communicator& c, int) {
    for (int round = 1; round <= 50; ++round) {
      ++come;
      c.barrier().wait();
      expect(come >= round * size, "left a barrier early");
      c.barrier({.priority = Priority::urgent}).wait();
      expect(come == round * size, "somebody passed a barrier that not all had left");
      c.barrier().wait();
    }
  });
}

TEST_CASE("every rank ends with the same bits") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int size = GENERATE(2, 3, 4, 7);
  const std::string algorithm = GENERATE("", "ring", "tree", "star", "doubling", "chain");
  const DType type = GENERATE(DType::f64, DType::f32, DType::f16, DType::bf16);
  constexpr std::size_t count = 3001;
  std::vector<transports::Blob> results(static_cast<std::size_t>(size),
                                        transports::Blob(count * size_of(type)));
  Setup setup = setup_of(over, size);
  setup.options.algorithm = algorithm;
  setup.options.segment_bytes = 2000;
  run_communicators(setup, "same bits", [&](Communicator& c, int rank) {
    // Random values, finite and of very different sizes, so that another order of adding would
    // show.
    transports::Blob in(count * size_of(type));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = mixed(i, static_cast<std::uint64_t>(rank));
      const double value =
          (static_cast<double>(bits >> 12) / 1e15 - 2) * static_cast<double>(1 << (bits % 8));
      const std::uint64_t element = encode(type, value);
      std::copy_n(reinterpret_cast<const std::byte*>(&element), size_of(type),
                  in.data() + i * size_of(type));
    }
    transports::Blob& out = results[static_cast<std::size_t>(rank)];
    c.all_reduce({in.data(), count, type}, {out.data(), count, type}, ReduceOp::mean,
                 {.scale = 0.3})
        .wait();
  });
  for (const transports::Blob& result : results) CHECK(result == results[0]);
}

TEST_CASE("a handle outlives its communicator, whose end ends the operation") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  std::vector<float> data(1000);
  Work left_over;
  run_communicators(setup_of(over, 2), "outlive", [&](Communicator& c, int rank) {
    if (rank == 0)
      left_over =
          c.all_reduce(buffer_of(std::span(data)), buffer_of(std::span(data)), ReduceOp::sum);
  });
  CHECK(left_over.done());
  CHECK(left_over.error());
  CHECK_FALSE(left_over.message().empty());
  CHECK_THROWS_AS(left_over.wait(), Error);
}

TEST_CASE("staging stays within its bound, however many operations are under way") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  Setup setup = setup_of(over, 4);
  setup.options.staging_bytes = std::size_t{256} << 10;
  run_communicators(setup, "staging", [](Communicator& c, int rank) {
    std::vector<Trial> trials;
    trials.reserve(24);
    for (int i = 0; i < 24; ++i) {
      const Collective operation = i % 2 == 0 ? Collective::reduce_scatter : Collective::reduce;
      const Priority priority = i % 3 == 0 ? Priority::urgent : Priority::bulk;
      trials
          .emplace_back(
              Case{operation, DType::f32, ReduceOp::sum, 50'000, i % 4, false, {}, priority}, rank,
              4)
          .start(c);
    }
    for (Trial& trial : trials) {
      finish_trial(trial);
      expect(c.statistics().staging_bytes <= std::size_t{256} << 10, "too much staging memory");
    }
    expect(c.statistics().operations == 24, "operations are miscounted");
  });
}

TEST_CASE("many ranks") {
  const int size = GENERATE(16, 33);
  run_communicators(setup_of(Over::mem, size), "many ranks", [](Communicator& c, int) {
    for (const Collective operation :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
          Collective::broadcast, Collective::reduce, Collective::barrier, Collective::gather,
          Collective::scatter, Collective::all_to_all, Collective::all_gather_v,
          Collective::reduce_scatter_v})
      Trial::run(c, {operation, DType::i32, ReduceOp::sum, 100, c.size() - 1});
  });
}

}  // namespace
}  // namespace rondo::testing

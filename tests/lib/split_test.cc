// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "lib/connect.h"
#include "support/effort.h"
#include "support/ranks.h"
#include "transports/tcp/tcp.h"

namespace rondo::testing {
namespace {

Setup setup_of(Over over, int size) {
  Setup setup;
  setup.over = over;
  setup.size = size;
  return setup;
}

// Returns the sum over ranks of their values.
int sum(Communicator& communicator, int value) {
  std::vector<std::int32_t> one{value};
  const Buffer buffer = buffer_of(std::span(one));
  communicator.all_reduce(buffer, buffer, ReduceOp::sum).wait();
  return one[0];
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const directory = ::opendir("/proc/self/fd");
  while (directory != nullptr && ::readdir(directory) != nullptr) ++count;
  if (directory != nullptr) ::closedir(directory);
  return count;
}

// In pages. Sanitizers keep freed memory.
constexpr std::size_t most_growth = RONDO_SANITIZED ? std::size_t{1} << 40 : 2048;

std::size_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident;
}

TEST_CASE("a split groups by color and orders by key, then by rank") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(setup_of(over, 7), "split", [](Communicator& c, int rank) {
    // Groups 0 3 6, 1 4 and 2 5, each in reverse order; then all ranks with equal keys.
    auto third = c.split(rank % 3, -rank);
    expect(third.has_value(), "no communicator");
    const int size = rank % 3 == 0 ? 3 : 2;
    expect(third->size() == size, "size");
    expect(third->rank() == size - 1 - rank / 3, "rank " + std::to_string(third->rank()));
    expect(sum(*third, 1 << rank) == (rank % 3 == 0 ? 0x49 : rank % 3 == 1 ? 0x12 : 0x24), "sum");
    const auto all = c.split(4711, 8);
    expect(all->size() == c.size() && all->rank() == rank, "equal keys keep the order");
    expect(sum(c, 1) == 7, "the parent goes on");
  }));
}

TEST_CASE("a negative color takes part and gets nothing") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(setup_of(over, 4), "split", [](Communicator& c, int rank) {
    auto some = c.split(rank == 2 ? -1 : 0, 0);
    expect(some.has_value() == (rank != 2), "who gets one");
    if (some) expect(sum(*some, rank) == 4 && some->size() == 3, "sum");
    expect(!c.split(-2 - rank, rank), "nobody");
    auto alone = c.split(rank, 0);
    expect(alone->size() == 1 && sum(*alone, 5) == 5, "alone");
  }));
  Options options;
  options.rank = 0;
  options.size = 1;
  Communicator one = Communicator::connect(options);
  CHECK(one.split(0, 0)->size() == 1);
  CHECK_FALSE(one.split(-1, 0).has_value());
}

TEST_CASE("a communicator may be split again, and outlives what it came from") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(setup_of(over, 6), "split", [](Communicator& c, int rank) {
    auto half = c.split(rank / 3, rank);
    auto part = half->split(half->rank() == 0 ? 1 : 0, 0);
    half.reset();
    expect(part->size() == (rank % 3 == 0 ? 1 : 2), "size");
    expect(sum(*part, 1) == part->size(), "sum");
  }));
}

TEST_CASE("communicators of one process run at once, each on a thread of its own") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  constexpr int threads = 4, rounds = 60;
  CHECK_NOTHROW(
      run_communicators(setup_of(over, 3), "several at once", [](Communicator& c, int rank) {
        std::vector<Communicator> own;
        for (int i = 0; i < threads; ++i)
          own.push_back(std::move(*c.split(0, i % 2 == 0 ? rank : -rank)));
        std::atomic<int> wrong = 0;
        {
          std::vector<std::jthread> workers;
          for (int i = 0; i < threads; ++i)
            workers.emplace_back([&, i] {
              Communicator& mine = own[static_cast<std::size_t>(i)];
              std::vector<float> values(static_cast<std::size_t>(1 + 3000 * i));
              for (int round = 0; round < rounds; ++round) {
                std::fill(values.begin(), values.end(), static_cast<float>(i + 1));
                const Buffer buffer = buffer_of(std::span(values));
                mine.all_reduce(buffer, buffer, ReduceOp::sum).wait();
                wrong += values.front() != static_cast<float>(3 * (i + 1)) ||
                         values.back() != values.front();
              }
            });
        }
        expect(wrong == 0, "wrong sums");
        expect(sum(c, 1) == 3, "the parent goes on");
      }));
}

TEST_CASE("a rank that cannot join is named to its whole group, and to nobody else") {
  MemoryStore store;
  std::atomic<int> named = 0;
  CHECK_NOTHROW(run_ranks(5, "failing split", [&](int rank) {
    Options options = Setup::quick_options();
    options.rank = rank;
    options.size = 5;
    options.store = &store;
    const auto factory = [&](const rendezvous::Place& place, const Options& o) {
      if (!place.group.empty() && rank == 3) throw Error(Errc::system, "no more descriptors");
      return lib::default_transports()(place, o);
    };
    Communicator c = lib::connect_with(options, factory);
    const bool with_it = rank % 2 == 1;
    try {
      auto part = c.split(rank % 2, 0);
      expect(!with_it && sum(*part, 1) == 3, "the other group");
    } catch (const Error& error) {
      expect(with_it, error.what());
      expect(error.code() == Errc::system, "code");
      expect(std::string(error.what()) == "split by color 1: rank 3 of 5: no more descriptors",
             error.what());
      ++named;
    }
    expect(sum(c, 1) == 5, "the parent goes on");
  }));
  CHECK(named == 2);
}

TEST_CASE("a rank that splits where another does not is a mismatch") {
  CHECK_NOTHROW(
      run_communicators(setup_of(Over::mem, 2), "mismatch", [](Communicator& c, int rank) {
        try {
          if (rank == 0)
            (void)c.split(0, 0);
          else
            c.barrier().wait();
          expect(false, "no error");
        } catch (const Error& error) {
          expect(error.code() == Errc::mismatch, error.what());
        }
      }));
}

TEST_CASE("splits leave nothing behind") {
  const Over over = GENERATE(Over::tcp, Over::shm);
  const int rounds = few_cases() ? 20 : whole_set() ? 1000 : 100;
  CHECK_NOTHROW(run_communicators(setup_of(over, 2), "splits", [&](Communicator& c, int rank) {
    std::size_t descriptors = 0, pages = 0;
    for (int round = 0; round < rounds; ++round) {
      if (round == rounds / 4) {
        c.barrier().wait();
        descriptors = open_descriptors();
        pages = resident_pages();
        c.barrier().wait();
      }
      auto both = c.split(0, rank);
      expect(sum(*both, 1) == 2, "sum");
    }
    c.barrier().wait();
    // Either rank may still be closing its last communicator.
    expect(open_descriptors() <= descriptors + 32, "descriptors left open");
    expect(resident_pages() <= pages + most_growth, "memory grows");
  }));
}

}  // namespace
}  // namespace rondo::testing

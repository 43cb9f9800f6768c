// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <thread>

#include "catch.h"
#include "point/messages.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Runs collectives and messages of one communicator. Returns how many results were wrong.
int exercise(Communicator& c, int rounds) {
  const int rank = c.rank(), size = c.size(), next = (rank + 1) % size,
            previous = (rank + size - 1) % size;
  std::vector<float> values(2000);
  const Buffer buffer = buffer_of(std::span(values));
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto number = static_cast<std::uint64_t>(round);
    const std::size_t bytes = round % 3 == 0 ? 150'000 : 200;
    Bytes out = content(rank, next, number, bytes), in(bytes);
    std::fill(values.begin(), values.end(), static_cast<float>(rank + round));
    Work sum = c.all_reduce(buffer, buffer, ReduceOp::sum);
    Work ring =
        c.batch(std::array{send_of(bytes_of(out), next, 1), receive_of(bytes_of(in), previous, 1)});
    ring.wait();
    sum.wait();
    wrong += in != content(previous, rank, number, bytes);
    wrong += values.back() != static_cast<float>(size * round + size * (size - 1) / 2);
    const std::vector<std::size_t> counts(static_cast<std::size_t>(size), 3);
    std::vector<std::int32_t> give(counts.size() * 3, rank), take(give.size());
    c.all_to_all_v(buffer_of(std::span(give)), counts, buffer_of(std::span(take)), counts).wait();
    for (std::size_t i = 0; i < take.size(); ++i)
      wrong += take[i] != static_cast<std::int32_t>(i / 3);
  }
  return wrong;
}

TEST_CASE("four threads, each with a communicator of its own, at once") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int rounds = std::max(5, 60 * effort() / 100);
  CHECK_NOTHROW(
      run_communicators(point_setup(over, 3), "threads", [rounds](Communicator& c, int rank) {
        std::vector<Communicator> own;
        for (int i = 0; i < 3; ++i)
          own.push_back(std::move(*c.split(i % 2, i % 2 == 0 ? rank : -rank)));
        std::atomic<int> wrong = 0;
        {
          std::vector<std::jthread> threads;
          for (Communicator& one : own)
            threads.emplace_back([&] { wrong += exercise(one, rounds); });
          wrong += exercise(c, rounds);
        }
        expect(wrong == 0, "wrong results");
      }));
}

TEST_CASE("works may be waited for by other threads than the one that starts") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(point_setup(over, 2), "waiters", [](Communicator& c, int rank) {
    constexpr std::size_t messages = 40, bytes = 30'000;
    std::vector<Bytes> memory;
    std::vector<Work> works;
    for (std::size_t i = 0; i < messages; ++i)
      memory.push_back(rank == 0 ? content(0, 1, i, bytes) : Bytes(bytes));
    for (std::size_t i = 0; i < messages; ++i)
      works.push_back(rank == 0
                          ? c.send(bytes_of(memory[i]), 1, static_cast<std::uint32_t>(i % 5))
                          : c.receive(bytes_of(memory[i]), 0, static_cast<std::uint32_t>(i % 5)));
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
          for (std::size_t i = t; i < messages; i += 4) works[i].wait();
        });
    }
    for (std::size_t i = 0; i < messages; ++i)
      expect(memory[i] == content(0, 1, i, bytes), "content");
  }));
}

}  // namespace
}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
//
// Tests two-level all-reduces whose ranks of a host share memory: sums and copies inside the host
// in windows and slots, and frames between hosts only. tests/table runs every type.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.h"
#include "support/effort.h"
#include "tests/engine/two_level_ranks.h"

namespace rondo::testing {
namespace {

float given(int rank, std::size_t i, int round) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 7 + i * 3) % 64 +
                            static_cast<std::size_t>(round));
}

// Several calls at once, so that sums of one overlap with copies of another.
void check_sums(Communicator& c, Where where, bool in_place, std::size_t count) {
  constexpr int rounds = 3;
  const bool window = in_window(where, c.rank());
  std::vector<Floats> ins, outs;
  std::vector<Work> works;
  for (int round = 0; round < rounds; ++round) {
    ins.emplace_back(c, window, count);
    outs.emplace_back(c, window, in_place ? 0 : count);
    for (std::size_t i = 0; i < count; ++i) ins.back().data()[i] = given(c.rank(), i, round);
  }
  for (int round = 0; round < rounds; ++round) {
    const auto at = static_cast<std::size_t>(round);
    OpOptions options;
    if (round == 1) options.priority = Priority::urgent;
    works.push_back(c.all_reduce(ins[at].buffer(), (in_place ? ins : outs)[at].buffer(),
                                 ReduceOp::sum, options));
  }
  for (int round = 0; round < rounds; ++round) {
    const auto at = static_cast<std::size_t>(round);
    works[at].wait();
    const float* const out = (in_place ? ins : outs)[at].data();
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int rank = 0; rank < c.size(); ++rank) sum += given(rank, i, round);
      expect(out[i] == sum, [&] {
        return "element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
               std::to_string(out[i]) + " instead of " + std::to_string(sum);
      });
      if (!in_place)
        expect(ins[at].data()[i] == given(c.rank(), i, round), "the input has changed");
    }
  }
}

TEST_CASE("two levels in shared memory: sums in windows, elsewhere and mixed") {
  const std::vector<int> hosts = GENERATE(
      std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1}, std::vector<int>{0, 0, 0, 1},
      std::vector<int>{0, 0, 1, 1, 1, 1, 1}, std::vector<int>{2, 0, 2, 1, 1, 0, 2, 2});
  const std::size_t segment_bytes = GENERATE(as<std::size_t>{}, 0, 4000, 100'000);
  CHECK_NOTHROW(
      run_communicators(setup_of(hosts, segment_bytes), "sums", [&](Communicator& c, int) {
        for (const Where where : {Where::elsewhere, Where::windows, Where::mixed})
          for (const bool in_place : {false, true})
            for (const std::size_t count : {0u, 1u, 5u, 1003u, few_cases() ? 5'011u : 40'011u})
              check_sums(c, where, in_place, count);
      }));
}

// A rank sends its rails round the hosts: 2(H-1) frames for each slice of a segment, and nothing to
// the other ranks of its host.
TEST_CASE("two levels in shared memory: frames go between hosts only") {
  const std::vector<int> hosts{0, 0, 0, 1, 1, 1, 2, 2};
  CHECK_NOTHROW(
      run_communicators(setup_of(hosts, 100'000), "frames", [&](Communicator& c, int rank) {
        std::vector<float> data(25'000, 1);
        const std::uint64_t before = c.statistics().frames_sent;
        c.all_reduce(buffer_of(data), buffer_of(data), ReduceOp::sum).wait();
        // Three rails of three slices, four hops for each slice over three hosts. On the host with
        // two ranks the first has two rails.
        const std::uint64_t rails = rank == 6 ? 2 : 1;
        const std::uint64_t sent = c.statistics().frames_sent - before;
        expect(sent == rails * 4, "rank " + std::to_string(rank) + " sent " + std::to_string(sent));
      }));
}

// f16 ends at 65,504: the sum of the host must be made smaller before it is stored.
TEST_CASE("two levels in shared memory: a mean of large f16 does not overflow on its way") {
  CHECK_NOTHROW(run_communicators(setup_of({0, 0, 0, 1}), "f16", [&](Communicator& c, int) {
    constexpr std::uint16_t large = 0x7b00;  // 57,344
    for (const std::size_t count : {3u, 30'000u}) {
      std::vector<std::uint16_t> data(count, large);
      const Buffer buffer{data.data(), count, DType::f16};
      c.all_reduce(buffer, buffer, ReduceOp::mean).wait();
      expect(std::ranges::count(data, large) == static_cast<std::ptrdiff_t>(count),
             "the mean differs");
    }
  }));
}

// The odd rank shares a host with one of the others.
TEST_CASE("two levels in shared memory: ranks that call different things get one mismatch") {
  const std::size_t odd_count = GENERATE(as<std::size_t>{}, 99, 50'000);
  const int odd = GENERATE(0, 1, 3);
  std::vector<std::string> messages(4);
  CHECK_NOTHROW(
      run_communicators(setup_of({0, 0, 1, 1}), "mismatch", [&](Communicator& c, int rank) {
        std::vector<float> data(60'000);
        const Buffer buffer{data.data(), rank == odd ? odd_count : 100, DType::f32};
        try {
          c.all_reduce(buffer, buffer, ReduceOp::sum).wait();
        } catch (const Error& error) {
          expect(error.code() == Errc::mismatch, error.what());
          messages[static_cast<std::size_t>(rank)] = error.what();
        }
      }));
  for (const std::string& message : messages) {
    INFO(message);
    CHECK(message.find("all_reduce #1 (100 f32 sum") != std::string::npos);
    CHECK(message.find("all_reduce #1 (" + std::to_string(odd_count) + " f32 sum") !=
          std::string::npos);
  }
}

TEST_CASE("two levels in shared memory: a late rank of the same host is named") {
  check_that_a_late_rank_is_named([](Communicator& c, const OpOptions& options) {
    std::vector<float> data(1000);
    c.all_reduce(buffer_of(data), buffer_of(data), ReduceOp::sum, options).wait();
  });
}

}  // namespace
}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0

#include "catch.h"
#include "point/messages.h"

namespace rondo::testing {
namespace {

// How many elements rank `from` sends to rank `to`: none for some pairs.
std::size_t count_of(int from, int to, int round) {
  return static_cast<std::size_t>((from * 7 + to * 13 + round) % 5) *
         static_cast<std::size_t>(round * 4000 + 3);
}

TEST_CASE("all_to_all_v moves every part to its place") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int size = GENERATE(1, 2, 3, 5, 8);
  CHECK_NOTHROW(
      run_communicators(point_setup(over, size), "all_to_all_v", [size](Communicator& c, int rank) {
        for (int round = 0; round < 4; ++round) {
          std::vector<std::size_t> send_counts, receive_counts;
          std::vector<std::int32_t> in, wanted;
          for (int peer = 0; peer < size; ++peer) {
            send_counts.push_back(count_of(rank, peer, round));
            receive_counts.push_back(count_of(peer, rank, round));
            for (std::size_t i = 0; i < send_counts.back(); ++i)
              in.push_back(rank * 1'000'000 + peer * 100'000 + static_cast<int>(i));
            for (std::size_t i = 0; i < receive_counts.back(); ++i)
              wanted.push_back(peer * 1'000'000 + rank * 100'000 + static_cast<int>(i));
          }
          std::vector<std::int32_t> out(wanted.size());
          c.all_to_all_v(buffer_of(std::span(in)), send_counts, buffer_of(std::span(out)),
                         receive_counts)
              .wait();
          expect(out == wanted, "round " + std::to_string(round));
        }
      }));
}

TEST_CASE("all_to_all_v: counts that disagree name the pair") {
  CHECK_NOTHROW(
      run_communicators(point_setup(Over::mem, 3), "disagree", [](Communicator& c, int rank) {
        std::vector<float> in(6), out(rank == 2 ? 7 : 6);
        std::vector<std::size_t> two(3, 2), counts(3, 2);
        if (rank == 2) counts[1] = 3;
        const Ended end = ended([&] {
          c.all_to_all_v(buffer_of(std::span(in)), two, buffer_of(std::span(out)), counts).wait();
        });
        expect(end.code == Errc::mismatch, end.message);
        expect(end.message.find(
                   "rank 1 called all_to_all_v #1 with 2 f32 for rank 2 where rank 2 called "
                   "all_to_all_v #1 with 3 f32 from rank 1") != std::string::npos,
               end.message);
      }));
}

TEST_CASE("all_to_all_v: arguments are checked at once") {
  CHECK_NOTHROW(run_communicators(point_setup(Over::mem, 2), "arguments", [](Communicator& c, int) {
    std::vector<float> in(4), out(4);
    const std::vector<std::size_t> good{2, 2}, few{4}, wrong{1, 2};
    const Buffer i = buffer_of(std::span(in)), o = buffer_of(std::span(out));
    const auto refused = [&](const std::vector<std::size_t>& gives,
                             const std::vector<std::size_t>& takes, Buffer to,
                             const std::string& why) {
      const Ended end = ended([&] { (void)c.all_to_all_v(i, gives, to, takes); });
      expect(end.code == Errc::invalid_argument && end.message.find(why) != std::string::npos,
             end.message);
    };
    refused(few, good, o, "there are 1 send counts, there must be one for each of the 2 ranks");
    refused(good, wrong, o, "out.count is 4, it must be the sum of the receive counts, 3");
    refused(good, good, i, "in and out overlap");
    refused(good, good, {out.data(), 4, DType::i32}, "in is f32 but out is i32");
    refused({std::size_t(-1), 5}, good, o,
            "the send counts add up to more f32 elements than memory can hold");
    c.all_to_all_v(i, good, o, good).wait();
  }));
}

}  // namespace
}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "catch.h"
#include "point/messages.h"

namespace rondo::testing {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::uint8_t>;

// Sizes around the limits of what travels in a header, at once, announced, and in pieces.
const std::vector<std::size_t> sizes{
    0, 1, 15, 16, 17, 63, 1000, 65'535, 65'536, 65'537, 524'288, 524'289, 1'048'576, 3'000'001};

TEST_CASE("a message of any size arrives, whoever calls first") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const bool checksum = GENERATE(false, true);
  Setup setup = point_setup(over, 2);
  setup.options.checksum = checksum;
  CHECK_NOTHROW(run_communicators(setup, "sizes", [](Communicator& c, int rank) {
    for (const bool receiver_first : {false, true})
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        Bytes sent = content(0, 1, i, sizes[i]), got(sizes[i], 77);
        const bool late = (rank == 0) == receiver_first;
        if (late) c.barrier().wait();
        Work work = rank == 0 ? c.send(bytes_of(sent), 1, 5) : c.receive(bytes_of(got), 0, 5);
        if (!late) c.barrier().wait();
        work.wait();
        expect(rank == 0 || got == sent, "content of " + std::to_string(sizes[i]));
      }
  }));
}

TEST_CASE("a ring of sends, all at once") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int size = GENERATE(1, 2, 3, 8);
  CHECK_NOTHROW(
      run_communicators(point_setup(over, size), "ring", [size](Communicator& c, int rank) {
        const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
        for (const std::size_t bytes :
             {std::size_t{8}, std::size_t{5000}, std::size_t{2'000'000}}) {
          Bytes out = content(rank, next, bytes, bytes), in(bytes);
          Work sending = c.send(bytes_of(out), next);
          c.receive(bytes_of(in), previous).wait();
          sending.wait();
          expect(in == content(previous, rank, bytes, bytes), "content");
          std::fill(in.begin(), in.end(), std::uint8_t{0});
          c.batch(
               std::array{send_of(bytes_of(out), next, 9), receive_of(bytes_of(in), previous, 9)})
              .wait();
          expect(in == content(previous, rank, bytes, bytes), "content of the batch");
        }
      }));
}

TEST_CASE("messages with one tag keep their order, those with others pass them") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const std::size_t bytes = GENERATE(4, 300, 70'000);
  constexpr std::uint32_t tags = 40;  // more than point::point_buckets
  constexpr std::uint64_t rounds = 5;
  CHECK_NOTHROW(run_communicators(point_setup(over, 2), "tags", [bytes](Communicator& c, int rank) {
    std::vector<Bytes> memory;
    std::vector<Work> works;
    if (rank == 0) {
      for (std::uint64_t round = 0; round < rounds; ++round)
        for (std::uint32_t tag = 0; tag < tags; ++tag)
          memory.push_back(content(0, 1, tag * 100 + round, bytes));
      for (std::size_t i = 0; i < memory.size(); ++i)
        works.push_back(
            c.send(bytes_of(memory[i]), 1, static_cast<std::uint32_t>(i % tags) + 0xfffffff0u));
      for (Work& work : works) work.wait();
      return;
    }
    for (std::uint32_t tag = tags; tag-- > 0;)
      for (std::uint64_t round = 0; round < rounds; ++round) {
        Bytes in(bytes);
        c.receive(bytes_of(in), 0, tag + 0xfffffff0u).wait();
        expect(in == content(0, 1, tag * 100 + round, bytes),
               "tag " + std::to_string(tag) + " round " + std::to_string(round));
      }
  }));
}

TEST_CASE("a rank may send to itself") {
  const int size = GENERATE(1, 2);
  CHECK_NOTHROW(
      run_communicators(point_setup(Over::mem, size), "self", [](Communicator& c, int rank) {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          Bytes out = content(rank, rank, i, sizes[i]), in(sizes[i]);
          Work receiving = c.receive(bytes_of(in), rank, 3);
          c.send(bytes_of(out), rank, 3).wait();
          receiving.wait();
          expect(in == out, "receive first");
          std::fill(in.begin(), in.end(), std::uint8_t{0});
          Work sending = c.send(bytes_of(out), rank, 3);
          if (sizes[i] <= 65'536) sending.wait();
          c.receive(bytes_of(in), rank, 3).wait();
          sending.wait();
          expect(in == out, "send first");
        }
        // More than the credit for messages that no receive has taken.
        std::vector<Work> works;
        std::vector<Bytes> memory;
        for (std::uint64_t i = 0; i < 30; ++i) memory.push_back(content(rank, rank, i, 40'000));
        for (Bytes& one : memory) works.push_back(c.send(bytes_of(one), rank));
        for (const Bytes& one : memory) {
          Bytes in(40'000);
          c.receive(bytes_of(in), rank).wait();
          expect(in == one, "order");
        }
        for (Work& work : works) work.wait();
      }));
}

TEST_CASE("a flood that nobody has asked for is bounded, and arrives") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const std::size_t bytes = GENERATE(0, 8, 3000, 65'536);
  const std::size_t messages = bytes == 0 ? 20'000 : bytes == 8 ? 12'000 : 300;
  CHECK_NOTHROW(run_communicators(point_setup(over, 2), "flood", [=](Communicator& c, int rank) {
    std::vector<Bytes> memory;
    std::vector<Transfer> list;
    for (std::size_t i = 0; i < messages; ++i)
      memory.push_back(rank == 0 ? content(0, 1, i, bytes) : Bytes(bytes));
    for (std::size_t i = 0; i < messages; ++i)
      list.push_back(rank == 0 ? send_of(bytes_of(memory[i]), 1)
                               : receive_of(bytes_of(memory[i]), 0));
    if (rank == 0) {
      Work flood = c.batch(list);
      c.barrier().wait();
      flood.wait();
    } else {
      c.barrier().wait();  // drives meanwhile, so the flood arrives
      Bytes other(1);
      Work late = c.receive(bytes_of(other), 0, 1);
      expect(!late.wait_for(milliseconds{50}), "nothing with this tag");
      expect(c.statistics().staging_bytes <= (std::size_t{1} << 20),
             "more memory than there is credit");
      c.batch(list).wait();
      c.barrier().wait();
      late.wait();
      for (std::size_t i = 0; i < messages; ++i)
        expect(memory[i] == content(0, 1, i, bytes), "message " + std::to_string(i));
      return;
    }
    c.barrier().wait();
    Bytes last(1);
    c.send(bytes_of(last), 1, 1).wait();
  }));
}

TEST_CASE("ranks may list a batch in any order") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(point_setup(over, 5), "batch", [](Communicator& c, int rank) {
    std::vector<Bytes> out, in;
    std::vector<Transfer> list;
    for (int peer = 0; peer < 5; ++peer) {
      out.push_back(content(rank, peer, 1, static_cast<std::size_t>(300'000 * rank + 7)));
      in.emplace_back(static_cast<std::size_t>(300'000 * peer + 7));
    }
    for (int i = 0; i < 5; ++i) {
      const auto up = static_cast<std::size_t>((rank + i) % 5), down = 4 - up;
      list.push_back(send_of(bytes_of(out[up]), static_cast<int>(up)));
      list.push_back(receive_of(bytes_of(in[down]), static_cast<int>(down)));
    }
    c.batch(list).wait();
    for (int peer = 0; peer < 5; ++peer)
      expect(in[static_cast<std::size_t>(peer)] ==
                 content(peer, rank, 1, static_cast<std::size_t>(300'000 * peer + 7)),
             "content");
    Work none = c.batch({});
    expect(none.done(), "an empty batch is done");
  }));
}

TEST_CASE("messages go beside collectives, in any order") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "beside", [](Communicator& c, int rank) {
    std::vector<float> values(500'000, 1.0f);
    const Buffer buffer = buffer_of(std::span(values));
    Bytes out = content(rank, (rank + 1) % 3, 0, 200'000), in(200'000);
    std::vector<Work> works;
    if (rank == 0) works.push_back(c.all_reduce(buffer, buffer, ReduceOp::sum));
    works.push_back(c.send(bytes_of(out), (rank + 1) % 3));
    if (rank == 1) works.push_back(c.all_reduce(buffer, buffer, ReduceOp::sum));
    works.push_back(c.receive(bytes_of(in), (rank + 2) % 3));
    if (rank == 2) works.push_back(c.all_reduce(buffer, buffer, ReduceOp::sum));
    for (Work& work : works) work.wait();
    expect(in == content((rank + 2) % 3, rank, 0, 200'000) && values.back() == 3.0f, "content");
  }));
}

TEST_CASE("arguments of messages are checked at once") {
  CHECK_NOTHROW(
      run_communicators(point_setup(Over::mem, 2), "arguments", [](Communicator& c, int rank) {
        Bytes one(4);
        const auto message = [&](const auto& call) {
          const Ended end = ended([&] { (void)call(); });
          expect(end.code == Errc::invalid_argument || end.code == Errc::unsupported, "code");
          return end.message.substr(end.message.find(": ") + 2);
        };
        expect(message([&] { return c.send(bytes_of(one), 2); }) ==
                   "the peer is 2, it must be from 0 to 1",
               "peer");
        expect(message([&] { return c.receive(bytes_of(one), -1); }) ==
                   "the peer is -1, it must be from 0 to 1",
               "peer");
        expect(message([&] {
                 return c.send({nullptr, 4, DType::u8}, 1);
               }) == "in.data is null but in.count is 4: pass memory or a count of 0",
               "null");
        const std::string device = message([&] {
          return c.send({one.data(), 4, DType::u8, 0}, 1);
        });
        expect(device.find("libcuda.so.1") != std::string::npos ||
                   device.find("in.data is in host memory") != std::string::npos,
               device);
        OpOptions scaled;
        scaled.scale = 2;
        expect(message([&] { return c.send(bytes_of(one), 1, 0, scaled); }) ==
                   "a scale factor applies to reductions only",
               "scale");
        Bytes in = one;
        c.batch(std::array{send_of(bytes_of(one), 1 - rank), receive_of(bytes_of(in), 1 - rank)})
            .wait();
      }));
}

}  // namespace
}  // namespace rondo::testing

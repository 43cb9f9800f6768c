// SPDX-License-Identifier: Apache-2.0
//
// Receives from any rank, over every transport.
#include <array>
#include <cstring>
#include <latch>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "catch.h"
#include "point/messages.h"
#include "transports/transport.h"

namespace rondo::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Bytes = std::vector<std::uint8_t>;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("messages of any size arrive from several ranks at once") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int size = GENERATE(2, 4);
  const std::size_t bytes = GENERATE(0, 1, 16, 17, 1000, 65'536, 65'537, 524'289, 3'000'001);
  const bool receiver_first = GENERATE(false, true);
  constexpr std::uint64_t each = 3;
  CHECK_NOTHROW(run_communicators(point_setup(over, size), "any", [=](Communicator& c, int rank) {
    std::vector<Bytes> memory;
    std::vector<Work> works;
    const bool late = (rank == 0) == receiver_first;
    if (late) c.barrier().wait();
    for (std::uint64_t i = 0; i < each * static_cast<std::uint64_t>(rank == 0 ? size - 1 : 1); ++i)
      memory.push_back(rank == 0 ? Bytes(bytes, 77) : content(rank, 0, i, bytes));
    for (Bytes& one : memory)
      works.push_back(rank == 0 ? c.receive_any(bytes_of(one), 5) : c.send(bytes_of(one), 0, 5));
    if (!late) c.barrier().wait();
    for (Work& work : works) work.wait();
    std::vector<std::uint64_t> come(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < works.size() && rank == 0; ++i) {
      const int source = works[i].source();
      expect(source > 0 && source < size, "source " + std::to_string(source));
      // Those of one sender keep their order.
      expect(memory[i] == content(source, 0, come[static_cast<std::size_t>(source)]++, bytes),
             "content from rank " + std::to_string(source));
    }
    for (int peer = 1; peer < size && rank == 0; ++peer)
      expect(come[static_cast<std::size_t>(peer)] == each, "messages of each rank");
    c.barrier().wait();
  }));
}

TEST_CASE("a server answers whoever asks") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  constexpr int size = 4, questions = 200;
  CHECK_NOTHROW(run_communicators(point_setup(over, size), "server", [](Communicator& c, int rank) {
    std::uint64_t number = 0, answer = 0;
    const Buffer question{&number, 1, DType::u64}, reply{&answer, 1, DType::u64};
    if (rank == 0) {
      for (int i = 0; i < questions * (size - 1); ++i) {
        Work work = c.receive_any(question, 1);
        work.wait();
        answer = number * 2;
        c.send(reply, work.source(), 2).wait();
      }
      return;
    }
    for (int i = 0; i < questions; ++i) {
      number = static_cast<std::uint64_t>(i * size + rank);
      c.send(question, 0, 1).wait();
      c.receive(reply, 0, 2).wait();
      expect(answer == number * 2, "answer");
    }
  }));
}

TEST_CASE("receives from any rank and from one take messages in the order of their calls") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const std::size_t bytes = GENERATE(8, 40'000, 100'000);
  const bool receiver_first = GENERATE(false, true);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "mixed", [=](Communicator& c, int rank) {
    constexpr std::size_t messages = 12;
    std::vector<Bytes> memory;
    std::vector<Work> works;
    const bool late = (rank == 0) == receiver_first;
    if (late) c.barrier().wait();
    for (std::size_t i = 0; i < messages && rank < 2; ++i)
      memory.push_back(rank == 0 ? Bytes(bytes) : content(1, 0, i, bytes));
    for (std::size_t i = 0; i < memory.size(); ++i)
      works.push_back(rank == 1    ? c.send(bytes_of(memory[i]), 0, 3)
                      : i % 3 == 1 ? c.receive(bytes_of(memory[i]), 1, 3)
                                   : c.receive_any(bytes_of(memory[i]), 3));
    if (!late) c.barrier().wait();
    for (Work& work : works) work.wait();
    for (std::size_t i = 0; i < memory.size() && rank == 0; ++i)
      expect(memory[i] == content(1, 0, i, bytes) && works[i].source() == 1,
             "message " + std::to_string(i));
    c.barrier().wait();
  }));
}

// A message with another tag, sent after it on the same link, shows that it has come.
TEST_CASE("of messages that have come, the oldest is taken, whichever rank sent it") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const std::size_t bytes = GENERATE(8, 1000, 70'000);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "oldest", [=](Communicator& c, int rank) {
    std::uint8_t token = 0;
    const Buffer one{&token, 1, DType::u8};
    for (const std::array<int, 3> order : {std::array{1, 2, 1}, std::array{2, 1, 2}}) {
      std::vector<Bytes> memory(3, Bytes(bytes));
      std::vector<Work> works;
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (rank == 0) {
          c.send(one, order[i], 8).wait();
          c.receive(one, order[i], 9).wait();
        } else if (rank == order[i]) {
          c.receive(one, 0, 8).wait();
          memory[i] = content(rank, 0, i, bytes);
          works.push_back(c.send(bytes_of(memory[i]), 0, 4));
          c.send(one, 0, 9).wait();
        }
      }
      for (std::size_t i = 0; i < order.size() && rank == 0; ++i) {
        Work work = c.receive_any(bytes_of(memory[i]), 4);
        work.wait();
        expect(work.source() == order[i], "source " + std::to_string(work.source()));
        expect(memory[i] == content(order[i], 0, i, bytes), "content");
      }
      for (Work& work : works) work.wait();
    }
  }));
}

TEST_CASE("a receive from any rank takes what the rank sends to itself") {
  const int size = GENERATE(1, 2);
  CHECK_NOTHROW(
      run_communicators(point_setup(Over::mem, size), "self", [](Communicator& c, int rank) {
        for (const std::size_t bytes :
             {std::size_t{0}, std::size_t{8}, std::size_t{500}, std::size_t{1'000'000}}) {
          Bytes out = content(rank, rank, bytes, bytes), in(bytes);
          Work receiving = c.receive_any(bytes_of(in), 3);
          c.send(bytes_of(out), rank, 3).wait();
          receiving.wait();
          expect(in == out && receiving.source() == rank, "receive first");
          std::fill(in.begin(), in.end(), std::uint8_t{0});
          Work sending = c.send(bytes_of(out), rank, 3);
          Work later = c.receive_any(bytes_of(in), 3);
          later.wait();
          sending.wait();
          expect(in == out && later.source() == rank, "send first");
        }
      }));
}

TEST_CASE("a work tells its source after its end, and only that of a receive") {
  CHECK_NOTHROW(
      run_communicators(point_setup(Over::mem, 2), "source", [](Communicator& c, int rank) {
        std::uint8_t out = 1, in = 0;
        const Buffer from{&out, 1, DType::u8}, to{&in, 1, DType::u8};
        const int other = 1 - rank;
        expect(Work().source() == -1, "an empty handle");
        Work named = c.receive(to, other, 1);
        expect(named.source() == -1, "under way");
        c.barrier().wait();
        Work sending = c.send(from, other, 1);
        named.wait();
        sending.wait();
        expect(named.source() == other, "a receive that names its peer");
        expect(sending.source() == -1, "a send");
        Work batch = c.batch(std::array{send_of(from, other), receive_of(to, other)});
        batch.wait();
        expect(batch.source() == -1, "a batch");
        Work barrier = c.barrier();
        barrier.wait();
        expect(barrier.source() == -1, "a collective");
        // The operation is used again.
        Work again = c.receive_any(to, 2);
        expect(again.source() == -1, "under way");
        Work ready;
        if (rank == 0) {
          ready = c.send(from, 1, 3);
        } else {
          c.receive(to, 0, 3).wait();
          c.abort(std::make_error_code(std::errc::operation_canceled));
        }
        expect(ended([&] { again.wait(); }).code == Errc::aborted, "aborted");
        expect(again.source() == -1, "failed");
      }));
}

TEST_CASE("the arguments of a receive from any rank are checked at once") {
  CHECK_NOTHROW(run_communicators(point_setup(Over::mem, 2), "arguments", [](Communicator& c, int) {
    Bytes one(4);
    const auto message = [&](const auto& call) {
      const Ended end = ended([&] { (void)call(); });
      expect(end.code == Errc::invalid_argument, "code");
      return end.message.substr(0, end.message.find(" on ")) +
             end.message.substr(end.message.find(": "));
    };
    expect(message([&] {
             return c.receive_any({nullptr, 4, DType::u8});
           }) == "receive_any: out.data is null but out.count is 4: pass memory or a count of 0",
           "null");
    OpOptions scaled;
    scaled.scale = 2;
    expect(message([&] { return c.receive_any(bytes_of(one), 0, scaled); }) ==
               "receive_any: a scale factor applies to reductions only",
           "scale");
    // A rank that was computed wrongly must not turn into any rank.
    expect(contains(message([&] { return c.receive(bytes_of(one), -1); }), "the peer is -1"), "-1");
    expect(contains(message([&] { return c.batch(std::array{receive_of(bytes_of(one), -1)}); }),
                    "the peer of a transfer is -1"),
           "-1 in a batch");
    c.barrier().wait();
  }));
}

TEST_CASE("a count or type that differs from the send's names both calls, from any rank") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const std::size_t sent = GENERATE(3, 100, 40'000);
  const int late = GENERATE(0, 1);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "mismatch", [=](Communicator& c, int rank) {
    std::vector<float> memory(sent + 1);
    const Buffer out{memory.data(), sent, DType::f32}, in{memory.data(), sent + 1, DType::f32};
    const Ended end = ended([&] {
      Work early;
      if (rank != late) c.barrier().wait();
      if (rank == 0) early = c.send(out, 1, 7);
      if (rank == 1) early = c.receive_any(in, 7);
      if (rank == late) c.barrier().wait();
      early.wait();
      c.barrier().wait();
    });
    expect(end.code == Errc::mismatch, end.message);
    expect(contains(end.message, "rank 0 called send #1 (") &&
               contains(end.message, " f32 to rank 1, tag 7) where rank 1 called receive #1 (") &&
               contains(end.message, " f32 from any rank, tag 7)"),
           end.message);
  }));
}

TEST_CASE("at the deadline a receive from any rank says that nobody has sent") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "deadline", [](Communicator& c, int rank) {
    Bytes memory(100);
    OpOptions brief;
    brief.deadline = milliseconds{300};
    const base::TimePoint begin = base::Clock::now();
    const Ended end = ended([&] {
      if (rank == 2) {
        c.send(bytes_of(memory), 1, 4).wait();
        c.send(bytes_of(memory), 1, 9).wait();
      }
      if (rank == 1) c.receive(bytes_of(memory), 2, 9).wait();
      if (rank == 1) c.receive_any(bytes_of(memory), 7, brief).wait();
      c.receive(bytes_of(memory), rank, 8).wait();
    });
    expect(end.code == Errc::deadline_exceeded, end.message);
    expect(base::Clock::now() - begin < seconds{5}, "late");
    expect(contains(end.message,
                    "not done within 0.3 s on rank 1: no rank has called send with tag 7 to rank "
                    "1; rank 2 has sent messages with tag 4 that are not received here"),
           end.message);
    if (rank == 1)
      expect(end.message.rfind("receive #2 (100 u8 from any rank, tag 7", 0) == 0, end.message);
  }));
}

TEST_CASE("a receive from any rank and a barrier that wait for each other are both named") {
  CHECK_NOTHROW(
      run_communicators(point_setup(Over::mem, 3), "crossed", [](Communicator& c, int rank) {
        Bytes memory(100);
        OpOptions brief;
        brief.deadline = milliseconds{300};
        const Ended end = ended([&] {
          if (rank == 1) c.receive_any(bytes_of(memory), 7, brief).wait();
          c.barrier().wait();
        });
        expect(end.code == Errc::deadline_exceeded, end.message);
        expect(contains(end.message, "in receive #1 (100 u8 from any rank, tag 7) for ranks 0, 2"),
               end.message);
        expect(contains(end.message, "in barrier #1 (no data), which rank 1 has not called"),
               end.message);
      }));
}

TEST_CASE("ranks that leave do not end a receive from any rank while another can send") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int receiver = GENERATE(0, 3);
  const std::size_t bytes = GENERATE(8, 30'000, 200'000);
  std::latch gone(receiver == 0 ? 3 : 2);
  CHECK_NOTHROW(run_communicators(point_setup(over, 4), "leaving", [&](Communicator& c, int rank) {
    // Each of the others sends ten messages and leaves, rank 0 last (it tells the others who has
    // left).
    Bytes memory(bytes);
    if (rank != receiver) {
      for (std::uint64_t i = 0; i < 10; ++i) {
        memory = content(rank, receiver, i, bytes);
        c.send(bytes_of(memory), receiver, 1).wait();
      }
      if (rank == 0) {
        c.receive(bytes_of(memory), receiver, 2).wait();
        return gone.wait();
      }
      { const Communicator last = std::move(c); }
      return gone.count_down();
    }
    std::array<std::uint64_t, 4> come{};
    for (int i = 0; i < 30; ++i) {
      Work work = c.receive_any(bytes_of(memory), 1);
      work.wait();
      const int source = work.source();
      expect(memory == content(source, rank, come[static_cast<std::size_t>(source)]++, bytes),
             "content");
    }
    if (receiver != 0) c.send(bytes_of(memory), 0, 2).wait();
    const Ended end = ended([&] { c.receive_any(bytes_of(memory), 1).wait(); });
    expect(end.code == Errc::peer_left, end.message);
    expect(contains(end.message,
                    "have left: they destroyed their communicators, and no other rank "
                    "can send to rank " +
                        std::to_string(receiver)),
           end.message);
  }));
}

TEST_CASE("a link that breaks ends a receive from any rank") {
  const bool clean = GENERATE(false, true);
  Setup setup = point_setup(Over::mem, 3);
  setup.faults.cuts = {{1, 0, transports::Lane::messages, 200, clean}};
  CHECK_NOTHROW(run_communicators(setup, "cut", [](Communicator& c, int rank) {
    Bytes memory(100);
    const Ended end = ended([&] {
      if (rank == 1) c.send(bytes_of(memory), 0, 1).wait();
      if (rank == 1) c.send(bytes_of(memory), 0, 1).wait();
      if (rank == 0) c.receive(bytes_of(memory), 1, 1).wait();
      c.receive_any(bytes_of(memory), 2).wait();
    });
    expect(end.code == Errc::peer_lost && contains(end.message, "lost rank"), end.message);
  }));
}

TEST_CASE("receives from any rank may be waited for by other threads") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "waiters", [](Communicator& c, int rank) {
    constexpr std::size_t messages = 40, bytes = 30'000;
    std::vector<Bytes> memory;
    std::vector<Work> works;
    for (std::size_t i = 0; i < messages; ++i)
      memory.push_back(rank != 0 ? content(rank, 0, i / 2, bytes) : Bytes(bytes));
    for (std::size_t i = 0; i < messages; ++i) {
      if (rank == 0) works.push_back(c.receive_any(bytes_of(memory[i])));
      if (rank != 0 && i % 2 == 0) works.push_back(c.send(bytes_of(memory[i]), 0));
    }
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
          for (std::size_t i = t; i < works.size(); i += 4) works[i].wait();
        });
    }
    std::array<std::uint64_t, 3> come{};
    for (std::size_t i = 0; i < messages && rank == 0; ++i) {
      const int source = works[i].source();
      expect(memory[i] == content(source, 0, come[static_cast<std::size_t>(source)]++, bytes),
             "content");
    }
  }));
}

}  // namespace
}  // namespace rondo::testing

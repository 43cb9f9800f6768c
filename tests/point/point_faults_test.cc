// SPDX-License-Identifier: Apache-2.0
//
// Tests failures of messages between two ranks, and what every rank is told.
#include <thread>

#include "base/clock.h"
#include "catch.h"
#include "point/messages.h"
#include "transports/transport.h"

namespace rondo::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Bytes = std::vector<std::uint8_t>;

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("counts and types that disagree name both calls on every rank") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const std::size_t sent = GENERATE(3, 1000, 40'000);
  const int late = GENERATE(0, 1);
  const bool larger = GENERATE(false, true);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "mismatch", [=](Communicator& c, int rank) {
    std::vector<float> memory(sent + 1);
    const Buffer out{memory.data(), sent, DType::f32};
    const Buffer in{memory.data(), larger ? sent + 1 : sent, larger ? DType::f32 : DType::i32};
    std::int32_t one = 0;
    const Buffer last{&one, 1, DType::i32};
    const Ended end = ended([&] {
      Work early;
      if (rank == 0 && late != 0) early = c.send(out, 1, 7);
      if (rank == 1 && late != 1) early = c.receive(in, 0, 7);
      c.barrier().wait();
      if (rank == 0 && late == 0) early = c.send(out, 1, 7);
      if (rank == 1 && late == 1) early = c.receive(in, 0, 7);
      early.wait();
      c.all_reduce(last, last, ReduceOp::sum).wait();
      c.barrier().wait();
    });
    expect(end.code == Errc::mismatch, end.message);
    const auto call = [&](const char* name, const Buffer& b, const char* peer) {
      const std::size_t bytes = b.count * 4;
      const std::string amount =
          bytes % 1024 == 0 ? std::to_string(bytes / 1024) + " KiB" : std::to_string(b.count);
      return std::string(name) + " #1 (" + amount + " " + std::string(name_of(b.type)) + peer +
             ", tag 7)";
    };
    const std::string both = "rank 0 called " + call("send", out, " to rank 1") +
                             " where rank 1 called " + call("receive", in, " from rank 0");
    expect(has(end.message, both), end.message + " / " + both);
  }));
}

TEST_CASE("at the deadline the message says what is missing") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "deadline", [](Communicator& c, int rank) {
    Bytes memory(100), large(1'000'000);
    OpOptions brief;
    brief.deadline = milliseconds{300};
    const base::TimePoint begin = base::Clock::now();
    const Ended end = ended([&] {
      if (rank == 0) {
        c.send(bytes_of(memory), 1, 4).wait();
        c.send(bytes_of(memory), 1, 3).wait();
        Work never = c.send(bytes_of(large), 1, 9);
        never.wait();
      }
      if (rank == 1) c.receive(bytes_of(memory), 0, 7, brief).wait();
      if (rank == 2) c.receive(bytes_of(memory), 0, 7).wait();
    });
    expect(end.code == Errc::deadline_exceeded, end.message);
    expect(base::Clock::now() - begin < seconds{5}, "late");
    expect(
        has(end.message,
            "not done within 0.3 s on rank 1: rank 0 has not called send with tag 7; it has sent "
            "messages with tags 3, 4, 9 that are not received here"),
        end.message);
    if (rank == 1)
      expect(end.message.rfind("receive #1 (100 u8 from rank 0, tag 7", 0) == 0, end.message);
  }));
}

TEST_CASE("a large message that nobody takes says so at the deadline") {
  CHECK_NOTHROW(
      run_communicators(point_setup(Over::mem, 2), "deadline", [](Communicator& c, int rank) {
        Bytes large(1'000'000);
        OpOptions brief;
        brief.deadline = milliseconds{200};
        const Ended end = ended([&] {
          if (rank == 0) c.send(bytes_of(large), 1, 9, brief).wait();
          c.barrier().wait();
        });
        expect(end.code == Errc::deadline_exceeded, end.message);
        // Each rank waits for the other, in different lanes.
        expect(has(end.message, "in barrier #1 (no data), which rank 0 has not called"),
               end.message);
        expect(has(end.message, "in send #1 (1000000 u8 to rank 1, tag 9) for rank 1"),
               end.message);
      }));
}

TEST_CASE("what a rank has sent before it leaves arrives; what it has not sent is named") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "leaving", [](Communicator& c, int rank) {
    Bytes out = content(1, 0, 1, 30'000), in(30'000);
    if (rank == 1) {
      for (int i = 0; i < 10; ++i) c.send(bytes_of(out), 0).wait();
      return;
    }
    const Ended end = ended([&] {
      for (int i = 0; i < 10 && rank == 0; ++i) {
        c.receive(bytes_of(in), 1).wait();
        expect(in == out, "content");
      }
      c.receive(bytes_of(in), 1, 5).wait();
    });
    expect(end.code == Errc::peer_left || end.code == Errc::aborted, end.message);
    expect(has(end.message, "destroyed its communicator"), end.message);
  }));
}

TEST_CASE("an abort from another thread ends messages on every rank") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  CHECK_NOTHROW(run_communicators(point_setup(over, 3), "abort", [](Communicator& c, int rank) {
    Bytes in(100);
    Work work = c.receive(bytes_of(in), (rank + 1) % 3);
    std::jthread other;
    if (rank == 1)
      other = std::jthread([&] { c.abort(std::make_error_code(std::errc::operation_canceled)); });
    const Ended end = ended([&] { work.wait(); });
    expect(end.code == Errc::aborted && has(end.message, "rank 1 called abort"), end.message);
    const Ended later = ended([&] { c.send(bytes_of(in), 0).wait(); });
    expect(later.code == Errc::aborted, "later operations fail at once");
  }));
}

TEST_CASE("a link that breaks between two ranks is told to the third") {
  const std::size_t cut_at = GENERATE(0, 100, 5000);
  Setup setup = point_setup(Over::mem, 3);
  setup.faults.cuts = {{0, 1, transports::Lane::messages, cut_at, false}};
  CHECK_NOTHROW(run_communicators(setup, "cut", [](Communicator& c, int rank) {
    Bytes memory(100'000);
    const Ended end = ended([&] {
      if (rank == 0) c.send(bytes_of(memory), 1).wait();
      if (rank == 1) c.receive(bytes_of(memory), 0).wait();
      if (rank == 2) c.receive(bytes_of(memory), 0).wait();
    });
    expect(end.code == Errc::peer_lost && has(end.message, "lost rank"), end.message);
  }));
}

}  // namespace
}  // namespace rondo::testing

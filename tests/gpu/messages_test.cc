// SPDX-License-Identifier: Apache-2.0
//
// Messages between memory of GPUs, or between a GPU and host memory.
#include <array>
#include <deque>
#include <optional>

#include "catch.h"
#include "gpu/gpu_ranks.h"
#include "point/messages.h"
#include "support/draw.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

using namespace std::chrono_literals;
using Octets = std::vector<std::uint8_t>;

// Sizes around the limits of what travels in a header, at once, announced, and in pieces.
const std::vector<std::size_t> message_sizes{
    0, 1, 16, 17, 1000, 65'535, 65'536, 65'537, 524'288, 524'289, 1'048'576, 9'000'001};

// Octets at an odd address on a GPU, or in host memory.
class Place {
 public:
  Place(OnGpu& on, std::size_t bytes, bool gpu) : on_(on), host_(bytes, 77) {
    if (gpu) {
      memory_.emplace(on.gpu(), bytes + 2);
      on.copier.write(address(), std::as_bytes(std::span(host_)));
    }
  }
  Place(OnGpu& on, const Octets& bytes, bool gpu) : Place(on, bytes.size(), gpu) {
    host_ = bytes;
    if (gpu) on.copier.write(address(), std::as_bytes(std::span(host_)));
  }
  Buffer buffer() { return part(0, host_.size()); }
  Buffer part(std::size_t offset, std::size_t bytes) {
    if (!memory_) return {host_.data() + offset, bytes, DType::u8};
    return {reinterpret_cast<void*>(address() + offset), bytes, DType::u8, on_.gpu().ordinal()};
  }
  const Octets& bytes() {
    if (memory_) on_.copier.read(std::as_writable_bytes(std::span(host_)), address());
    return host_;
  }

 private:
  device::Address address() const noexcept { return memory_->address() + 1; }

  OnGpu& on_;
  Octets host_;
  std::optional<device::DeviceMemory> memory_;
};

TEST_CASE("a message of any size between GPUs and host memory, whoever calls first") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const bool checksum = GENERATE(false, true);
  Setup setup = point_setup(over, 2);
  setup.options.checksum = checksum;
  CHECK_NOTHROW(run_on_gpus(setup, "sizes", [](Communicator& c, OnGpu& on) {
    std::uint64_t number = 0;
    for (const std::size_t size : message_sizes)
      for (const bool receiver_first : {false, true})
        for (const bool from_gpu : {false, true})
          for (const bool to_gpu : {false, true}) {
            const Octets sent = content(0, 1, ++number, size);
            Place memory = c.rank() == 0 ? Place(on, sent, from_gpu) : Place(on, size, to_gpu);
            const bool late = (c.rank() == 0) == receiver_first;
            if (late) c.barrier().wait();
            Work work =
                c.rank() == 0 ? c.send(memory.buffer(), 1, 5) : c.receive(memory.buffer(), 0, 5);
            if (!late) c.barrier().wait();
            work.wait();
            expect(memory.bytes() == sent, "content of " + std::to_string(size));
          }
  }));
}

TEST_CASE("messages of a rank to itself, on GPUs and in host memory") {
  CHECK_NOTHROW(run_on_gpus(point_setup(Over::mem, 1), "self", [](Communicator& c, OnGpu& on) {
    std::uint64_t number = 0;
    for (const std::size_t size : message_sizes)
      for (const bool receiver_first : {false, true})
        for (const bool from_gpu : {false, true})
          for (const bool to_gpu : {false, true}) {
            Place from(on, content(0, 0, ++number, size), from_gpu), to(on, size, to_gpu);
            Work receive, send;
            if (receiver_first) receive = c.receive(to.buffer(), 0);
            send = c.send(from.buffer(), 0);
            if (!receiver_first) receive = c.receive(to.buffer(), 0);
            receive.wait();
            send.wait();
            expect(to.bytes() == from.bytes(), "content of " + std::to_string(size));
          }
  }));
}

// More messages than there are slots, small and large, in both directions at once.
TEST_CASE("many messages between GPUs at once") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int size = GENERATE(2, 5);
  CHECK_NOTHROW(run_on_gpus(point_setup(over, size), "many", [size](Communicator& c, OnGpu& on) {
    const std::size_t rounds = few_cases() ? 6 : 15;
    std::deque<Place> out, in;
    std::vector<Work> works;
    for (std::size_t round = 0; round < rounds; ++round)
      for (int peer = 0; peer < size; ++peer) {
        const std::size_t bytes = std::array<std::size_t, 4>{8, 3000, 65'536, 1'300'000}[round % 4];
        out.emplace_back(on, content(c.rank(), peer, round, bytes), round % 3 != 0);
        works.push_back(c.send(out.back().buffer(), peer, static_cast<std::uint32_t>(round % 5)));
      }
    for (std::size_t round = 0; round < rounds; ++round)
      for (int peer = 0; peer < size; ++peer) {
        const std::size_t bytes = std::array<std::size_t, 4>{8, 3000, 65'536, 1'300'000}[round % 4];
        in.emplace_back(on, bytes, round % 4 != 1);
        works.push_back(c.receive(in.back().buffer(), peer, static_cast<std::uint32_t>(round % 5)));
      }
    for (Work& work : works) work.wait();
    std::size_t next = 0;
    for (std::size_t round = 0; round < rounds; ++round)
      for (int peer = 0; peer < size; ++peer, ++next)
        expect(in[next].bytes() == content(peer, c.rank(), round, in[next].bytes().size()),
               "content of round " + std::to_string(round));
  }));
}

// With several connections a link takes a frame while it still reads the one before.
TEST_CASE("long messages from a GPU over several connections") {
  Setup setup = point_setup(Over::tcp, 2);
  setup.options.connections = 4;
  CHECK_NOTHROW(run_on_gpus(setup, "connections", [](Communicator& c, OnGpu& on) {
    std::deque<Place> places;
    std::vector<Work> works;
    for (std::uint64_t i = 0; i < 6; ++i) {
      const Octets sent = content(0, 1, i, 9'000'001);
      if (c.rank() == 0)
        places.emplace_back(on, sent, true);
      else
        places.emplace_back(on, sent.size(), i % 2 == 0);
      works.push_back(c.rank() == 0 ? c.send(places.back().buffer(), 1)
                                    : c.receive(places.back().buffer(), 0));
    }
    for (Work& work : works) work.wait();
    for (std::uint64_t i = 0; i < 6; ++i)
      expect(places[i].bytes() == content(0, 1, i, 9'000'001), "message " + std::to_string(i));
  }));
}

// A copy that was enqueued, and whose end could not be: the operation fails, and the memory is not
// written afterwards.
TEST_CASE("nothing is stored after a receive has failed") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  RankBarrier together(2);
  CHECK_NOTHROW(run_on_gpus(point_setup(Over::mem, 2), "late", [&](Communicator& c, OnGpu& on) {
    Place memory(on, Octets(1000, c.rank() == 0 ? 5 : 77), true);
    Work work;
    if (c.rank() == 1) {
      // A receive before it has made what calls need.
      c.receive(memory.part(0, 1), 0, 1).wait();
      work = c.receive(memory.buffer(), 0, 2);
      together.arrive_and_wait();
      fake.fail("cuEventRecord", 1, 1, 304);
    } else {
      c.send(memory.part(0, 1), 1, 1).wait();
      together.arrive_and_wait();
    }
    together.arrive_and_wait();
    Place sent(on, Octets(1000, 5), false);
    if (c.rank() == 0) work = c.send(sent.buffer(), 1, 2);
    const Ended how = ended([&] { work.wait(); });
    if (c.rank() == 1) {
      expect(how.code == Errc::system, how.message);
      const Octets before = memory.bytes();
      fake.settle();
      expect(memory.bytes() == before, "written after the end");
    }
    together.arrive_and_wait();
    fake.clear();
  }));
}

TEST_CASE("all_to_all_v and batches between GPUs") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int size = GENERATE(1, 2, 4);
  CHECK_NOTHROW(
      run_on_gpus(point_setup(over, size), "exchange", [size](Communicator& c, OnGpu& on) {
        for (const std::size_t unit : {std::size_t{3}, std::size_t{20'000}, std::size_t{700'000}}) {
          std::vector<std::size_t> give, take;
          Octets out;
          for (int peer = 0; peer < size; ++peer) {
            give.push_back(unit * static_cast<std::size_t>((c.rank() + peer) % 3));
            take.push_back(unit * static_cast<std::size_t>((c.rank() + peer) % 3));
            const Octets part = content(c.rank(), peer, unit, give.back());
            out.insert(out.end(), part.begin(), part.end());
          }
          Place from(on, out, true), to(on, out.size(), true), batched(on, out.size(), true);
          c.all_to_all_v(from.buffer(), give, to.buffer(), take).wait();
          std::vector<Transfer> batch;
          std::size_t offset = 0;
          for (int peer = 0; peer < size; ++peer) {
            const std::size_t bytes = take[static_cast<std::size_t>(peer)];
            batch.push_back(send_of(from.part(offset, bytes), peer, 3));
            batch.push_back(receive_of(batched.part(offset, bytes), peer, 3));
            offset += bytes;
          }
          c.batch(batch).wait();
          Octets wanted;
          for (int peer = 0; peer < size; ++peer) {
            const Octets part = content(peer, c.rank(), unit, take[static_cast<std::size_t>(peer)]);
            wanted.insert(wanted.end(), part.begin(), part.end());
          }
          expect(to.bytes() == wanted, "all_to_all_v");
          expect(batched.bytes() == wanted, "batch");
        }
      }));
}

TEST_CASE("receives from any rank into a GPU") {
  CHECK_NOTHROW(run_on_gpus(point_setup(Over::mem, 3), "any", [](Communicator& c, OnGpu& on) {
    if (c.rank() != 0) {
      Place out(on, content(c.rank(), 0, 0, 70'000), true);
      return c.send(out.buffer(), 0, 9).wait();
    }
    for (int i = 0; i < 2; ++i) {
      Place in(on, 70'000, true);
      Work work = c.receive_any(in.buffer(), 9);
      work.wait();
      expect(in.bytes() == content(work.source(), 0, 0, 70'000), "content");
    }
  }));
}

// On each rank the stream of the call is held back.
TEST_CASE("a message comes after what was enqueued on its stream before") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  const int held = GENERATE(0, 1);
  CHECK_NOTHROW(run_on_gpus(point_setup(Over::tcp, 2), "stream", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    Place memory(on, content(c.rank(), 0, 1, 90'000), true);
    Place other(on, content(c.rank(), 0, 2, 90'000), true);
    if (c.rank() == held) fake.hold(stream.get());
    const OpOptions options{.stream = stream.get()};
    Work late = c.rank() == 0 ? c.send(memory.buffer(), 1, 1, options)
                              : c.receive(memory.buffer(), 0, 1, options);
    // Messages of other streams pass it.
    Work work = c.rank() == 0 ? c.send(other.buffer(), 1, 2) : c.receive(other.buffer(), 0, 2);
    work.wait();
    expect(other.bytes() == content(0, 0, 2, 90'000), "other content");
    if (c.rank() == held) {
      expect(!late.wait_for(20ms), "it ended before its stream");
      expect(memory.bytes() == content(c.rank(), 0, 1, 90'000), "stored before its stream");
      fake.let_go(stream.get());
    }
    late.wait();
    expect(memory.bytes() == content(0, 0, 1, 90'000), "content");
  }));
}

TEST_CASE("messages with one tag keep their order although the first waits for its stream") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(point_setup(Over::mem, 2), "order", [&](Communicator& c, OnGpu& on) {
    if (c.rank() == 1) {
      Place first(on, 100, true), second(on, 100, true);
      c.receive(first.buffer(), 0).wait();
      c.receive(second.buffer(), 0).wait();
      expect(first.bytes() == content(0, 1, 1, 100), "first");
      expect(second.bytes() == content(0, 1, 2, 100), "second");
      return;
    }
    const device::Stream stream(on.gpu());
    Place first(on, content(0, 1, 1, 100), true), second(on, content(0, 1, 2, 100), false);
    fake.hold(stream.get());
    Work one = c.send(first.buffer(), 1, 0, {.stream = stream.get()});
    Work two = c.send(second.buffer(), 1);
    expect(!two.wait_for(20ms), "the second passed the first");
    fake.let_go(stream.get());
    one.wait();
    two.wait();
  }));
}

TEST_CASE("many messages wait for several streams, which move one after the other") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  constexpr std::uint32_t streams = 3, each = 100;
  constexpr std::array<std::uint32_t, streams> order{1, 0, 2};
  CHECK_NOTHROW(run_on_gpus(point_setup(Over::shm, 2), "streams", [&](Communicator& c, OnGpu& on) {
    std::deque<Place> places;
    std::deque<device::Stream> held;
    std::vector<Work> works(streams * each);
    for (std::uint32_t s = 0; s < streams; ++s) {
      held.emplace_back(on.gpu());
      if (c.rank() == 0) fake.hold(held[s].get());
    }
    for (std::uint32_t i = 0; i < streams * each; ++i) {  // the streams take turns
      const OpOptions options{.stream = held[i % streams].get()};
      if (c.rank() == 0)
        places.emplace_back(on, content(0, 1, i, 50), true);
      else
        places.emplace_back(on, 50, true);
      works[i] = c.rank() == 0 ? c.send(places[i].buffer(), 1, i, options)
                               : c.receive(places[i].buffer(), 0, i, options);
    }
    for (std::uint32_t done = 0; done < streams; ++done) {
      if (c.rank() == 0) fake.let_go(held[order[done]].get());
      for (std::uint32_t i = order[done]; i < works.size(); i += streams) {
        works[i].wait();
        expect(places[i].bytes() == content(0, 1, i, 50), "content");
      }
      if (done + 1 < streams)
        expect(!works[order[done + 1]].wait_for(1ms), "it ended before its stream");
      c.barrier().wait();
    }
  }));
}

TEST_CASE("a message whose stream never moves says so") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  Setup setup = point_setup(Over::mem, 2);
  std::string message;
  run_on_gpus(setup, "stuck", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    Place memory(on, 1000, true);
    if (c.rank() == 0) fake.hold(stream.get());
    const Ended how = ended([&] {
      const OpOptions options{.stream = stream.get(), .deadline = 100ms};
      (c.rank() == 0 ? c.send(memory.buffer(), 1, 0, options)
                     : c.receive(memory.buffer(), 0, 0, {.deadline = 10s}))
          .wait();
    });
    if (c.rank() == 0) {
      message = how.message;
      fake.let_go(stream.get());
    }
    expect(how.code == Errc::deadline_exceeded,
           "rank " + std::to_string(c.rank()) + ": " + how.message);
  });
  INFO(message);
  CHECK(
      message.find("it has not begun, because it waits for GPU 0, which has not yet done the work "
                   "that was enqueued on the call's stream before the call") != std::string::npos);
}

TEST_CASE("a batch with buffers on a GPU and in host memory is refused") {
  CHECK_NOTHROW(run_on_gpus(point_setup(Over::mem, 1), "mixed", [](Communicator& c, OnGpu& on) {
    Place gpu(on, 100, true), host(on, 100, false);
    const Ended how = ended([&] {
      c.batch(std::array{send_of(gpu.buffer(), 0), receive_of(host.buffer(), 0)}).wait();
    });
    expect(
        how.code == Errc::invalid_argument &&
            how.message.find("all buffers of a call must be on one GPU, or all in host memory") !=
                std::string::npos,
        how.message);
  }));
}

}  // namespace
}  // namespace rondo::testing

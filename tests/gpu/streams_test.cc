// SPDX-License-Identifier: Apache-2.0
//
// The caller's stream orders the start of an operation, join() its end, and nobody burns a core
// meanwhile.
#include <atomic>
#include <thread>

#include "catch.h"
#include "gpu/gpu_ranks.h"

namespace rondo::testing {
namespace {

using namespace std::chrono_literals;

// Enqueues copies of 1 KiB and more between pinned memory and the GPU on a stream of the caller.
class Pinned {
 public:
  Pinned(OnGpu& on, std::size_t count) : on_(on), memory_(on.gpu(), count * sizeof(float)) {}
  float* data() const noexcept { return reinterpret_cast<float*>(memory_.data()); }
  void to_gpu(const GpuFloats& to, const device::Stream& stream) {
    const device::Current current(on_.gpu());
    on_.gpu().check(on_.gpu().driver().copy_to_device(to.address(), memory_.data(), memory_.bytes(),
                                                      stream.get()),
                    "copy");
  }
  void from_gpu(const GpuFloats& from, const device::Stream& stream) {
    const device::Current current(on_.gpu());
    on_.gpu().check(on_.gpu().driver().copy_to_host(memory_.data(), from.address(), memory_.bytes(),
                                                    stream.get()),
                    "copy");
  }

 private:
  OnGpu& on_;
  device::PinnedMemory memory_;
};

TEST_CASE("an operation comes after what was enqueued on its stream before") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  for (const Setup& setup : every_way()) {
    run_on_gpus(setup, "start", [&](Communicator& c, OnGpu& on) {
      constexpr std::size_t count = 50'000;
      GpuFloats values(on, count, 0), more(on, count, 1);
      Pinned input(on, count);
      std::fill_n(input.data(), count, 1.0F + static_cast<float>(c.rank()));
      const device::Stream stream(on.gpu());
      fake.hold(stream.get());
      input.to_gpu(values, stream);
      const Work late =
          c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum, {.stream = stream.get()});
      expect(!late.wait_for(20ms), "it ended before its stream");
      // Another operation of the lane, with the default stream, is not held back on its GPU.
      const Work other = c.all_reduce(more.buffer(), more.buffer(), ReduceOp::sum);
      fake.let_go(stream.get());
      late.wait();
      other.wait();
      expect(values.are(3) && more.are(2), "wrong sum");
    });
  }
}

// The system gives the id of a thread that has ended to the next one; CUDA gives it another stream.
TEST_CASE("an operation does not wait for the stream of a thread that has ended") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  const auto own = reinterpret_cast<device::StreamHandle>(2);  // CU_STREAM_PER_THREAD
  run_on_gpus({}, "threads", [&](Communicator& c, OnGpu& on) {
    constexpr std::size_t count = 1000;
    GpuFloats kept(on, count, 7), values(on, count, 1);
    const device::Stream held(on.gpu());
    device::Event event(on.gpu());
    Work first, second;
    if (c.rank() == 1) fake.hold(held.get());
    std::thread([&] {
      const device::Current current(on.gpu());
      on.gpu().check(event.record(held.get()), "record");
      on.gpu().check(on.gpu().driver().stream_wait_event(own, event.get(), 0), "wait");
      // On the receiver only the store waits for the stream.
      first = c.broadcast(kept.buffer(), kept.buffer(), 0, {.stream = own});
    }).join();
    std::thread([&] {
      second = c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum, {.stream = own});
    }).join();
    expect(second.wait_for(5s), "it waits for the stream of the other thread");
    fake.let_go(held.get());
    first.wait();
    expect(values.are(2) && kept.are(7), "wrong result");
  });
}

// The stream of a broadcast's receiver still reads the output when the data has come.
TEST_CASE("results are not stored before the stream has reached the call") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  for (const Setup& setup : every_way())
    run_on_gpus(setup, "store", [&](Communicator& c, OnGpu& on) {
      GpuFloats values(on, 5000, static_cast<float>(c.rank()));
      const device::Stream stream(on.gpu());
      Pinned before(on, 5000);
      if (c.rank() == 1) {
        fake.hold(stream.get());
        before.from_gpu(values, stream);
      }
      const Work work = c.broadcast(values.buffer(), values.buffer(), 0, {.stream = stream.get()});
      if (c.rank() == 1) {
        expect(!work.wait_for(20ms), "it ended before its stream");
        expect(values.are(1), "it stored before its stream");
        fake.let_go(stream.get());
      }
      work.wait();
      expect(values.are(0), "wrong result");
      expect(c.rank() == 0 || before.data()[4999] == 1, "the stream saw the result too early");
    });
}

TEST_CASE("a stream that joins finds the result") {
  for (const Setup& setup : every_way()) {
    run_on_gpus(setup, "join", [&](Communicator& c, OnGpu& on) {
      constexpr std::size_t count = 30'000;
      GpuFloats values(on, count, 0);
      const device::Stream stream(on.gpu());
      Pinned input(on, count), output(on, count);
      for (int round = 1; round <= 20; ++round) {
        const float mine = static_cast<float>(round + c.rank());
        settle(on, stream);
        std::fill_n(input.data(), count, mine);
        std::fill_n(output.data(), count, 0.0F);
        // The host waits for nothing between these.
        input.to_gpu(values, stream);
        const Work work =
            c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum, {.stream = stream.get()});
        work.join(stream.get());
        output.from_gpu(values, stream);
        settle(on, stream);
        const float sum = static_cast<float>(2 * round + 1);
        expect(std::all_of(output.data(), output.data() + count, [=](float v) { return v == sum; }),
               "the stream read before the result was there");
        work.wait();
      }
    });
  }
}

TEST_CASE("a rank whose stream is past its last call has not left in the middle of it") {
  run_on_gpus(Setup{}, "leaves", [&](Communicator& c, OnGpu& on) {
    const GpuFloats values(on, 30'000, 1);
    const device::Stream stream(on.gpu());
    for (int round = 0; round < 50; ++round) {
      Communicator part = *c.split(0, c.rank());
      const Work work = part.all_reduce(values.buffer(), values.buffer(), ReduceOp::max);
      if (c.rank() == 0) {
        work.join(stream.get());
        settle(on, stream);
        continue;
      }
      work.wait();
      refused(Errc::peer_left, "rank 0 has left: it destroyed its communicator after operation #1",
              [&] { part.barrier().wait(); });
    }
  });
}

// With these delays the last copy is under way for a while after it has been enqueued.
TEST_CASE("join does not wait for the end, although another thread waits for it") {
  Setup setup;
  std::atomic<int> early{0};
  run_on_gpus(setup, "join beside a wait", [&](Communicator& c, OnGpu& on) {
    GpuFloats values(on, 200'000, 1);
    const device::Stream stream(on.gpu());
    for (int round = 0; round < 30; ++round) {
      const Work work = c.all_reduce(values.buffer(), values.buffer(), ReduceOp::max);
      std::thread other([&] { work.wait(); });
      work.join(stream.get());
      early += work.done() ? 0 : 1;
      other.join();
    }
  });
  CHECK(early > 0);
}

TEST_CASE("join for a time ends with the time, and the operation goes on") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  Setup setup;
  setup.size = 1;
  run_on_gpus(setup, "join for a time", [&](Communicator& c, OnGpu& on) {
    GpuFloats values(on, 1000, 1);
    const device::Stream held(on.gpu()), joining(on.gpu());
    fake.hold(held.get());
    const Work work =
        c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum, {.stream = held.get()});
    expect(!work.join_for(joining.get(), std::chrono::milliseconds{5}), "it joined too early");
    expect(!work.done(), "the operation has ended");
    fake.let_go(held.get());
    expect(work.join_for(joining.get(), std::chrono::minutes{1}), "it did not join");
    settle(on, joining);
    expect(values.are(1), "the stream did not wait");
    work.wait();
    expect(work.join_for(joining.get(), {}), "an operation that has ended cannot be joined");
  });
}

TEST_CASE("a stream that is being captured cannot join") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  Setup setup;
  setup.size = 1;
  run_on_gpus(setup, "capture", [&](Communicator& c, OnGpu& on) {
    GpuFloats values(on, 1000, 1);
    const device::Stream held(on.gpu()), capturing(on.gpu());
    fake.hold(held.get());
    device::Event before(on.gpu());
    const Work work =
        c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum, {.stream = held.get()});
    fake.capture(capturing.get(), true);
    fake.let_go(held.get());
    std::error_code code;
    try {
      work.join(capturing.get());
    } catch (const Error& error) {
      code = error.code();
    }
    fake.capture(capturing.get(), false);
    expect(work.done() || code == Errc::unsupported, "the stream joined");
    work.wait();
  });
}

TEST_CASE("operations on GPU memory end while nobody waits") {
  for (const int size : {1, 3}) {
    Setup setup;
    setup.size = size;
    run_on_gpus(setup, "unattended", [&](Communicator& c, OnGpu& on) {
      GpuFloats values(on, 20'000, 1);
      const Work work = c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum);
      const auto until = std::chrono::steady_clock::now() + 20s;
      while (!work.done() && std::chrono::steady_clock::now() < until) ::sched_yield();
      expect(work.done(), "it has not ended");
      expect(values.are(static_cast<float>(c.size())), "wrong sum");
    });
  }
}

// A rank that polled all the time would ask some hundred thousand times.
TEST_CASE("a rank that waits for its GPU sleeps") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  for (const Setup& setup : every_way()) {
    if (setup.over == Over::mem) continue;
    run_on_gpus(setup, "sleep", [&](Communicator& c, OnGpu& on) {
      GpuFloats values(on, 1000, 1);
      const device::Stream stream(on.gpu());
      Pinned input(on, 1000);
      std::fill_n(input.data(), 1000, 1.0F);
      fake.hold(stream.get());
      input.to_gpu(values, stream);
      const unsigned long watched = fake.calls("cuLaunchHostFunc");
      const Work work =
          c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum, {.stream = stream.get()});
      expect(!work.wait_for(50ms), "it ended before its stream");
      const unsigned long asked = fake.calls("cuEventQuery");
      expect(fake.calls("cuLaunchHostFunc") > watched, "nothing would wake it");
      expect(!work.wait_for(400ms), "it ended before its stream");
      expect(fake.calls("cuEventQuery") - asked < 20'000, "it has polled all the time");
      fake.let_go(stream.get());
      work.wait();
      expect(values.are(2), "wrong sum");
    });
  }
}

// Without a wake-up each round would take a second.
TEST_CASE("a rank that sleeps wakes when its GPU goes on") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  for (const Over over : {Over::tcp, Over::shm}) {
    Setup setup;
    setup.over = over;
    const auto began = std::chrono::steady_clock::now();
    run_on_gpus(setup, "wake", [&](Communicator& c, OnGpu& on) {
      GpuFloats values(on, 1000, 1);
      const device::Stream stream(on.gpu());
      Pinned input(on, 1000);
      for (int round = 0; round < 40; ++round) {
        std::fill_n(input.data(), 1000, 1.0F);
        if (c.rank() == 1) fake.hold(stream.get());
        input.to_gpu(values, stream);
        // On the receiver of a broadcast only the store waits for the stream.
        const OpOptions options{.stream = stream.get()};
        const Work work =
            round % 2 == 0 ? c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum, options)
                           : c.broadcast(values.buffer(), values.buffer(), 0, options);
        // While this thread sleeps in wait().
        const std::jthread later([&] {
          if (c.rank() != 1) return;
          std::this_thread::sleep_for(5ms);
          fake.let_go(stream.get());
        });
        work.wait();
      }
    });
    CHECK(std::chrono::steady_clock::now() - began < 15s);
  }
}

TEST_CASE("a stream that never gets to the call is named at the deadline") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  Setup setup;
  setup.size = 3;
  setup.over = Over::tcp;
  std::vector<std::string> messages(3);
  run_on_gpus(setup, "deadline", [&](Communicator& c, OnGpu& on) {
    GpuFloats values(on, 1000, 1);
    const device::Stream stream(on.gpu());
    Pinned input(on, 1000);
    if (c.rank() == 1) fake.hold(stream.get());
    input.to_gpu(values, stream);
    try {
      c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum,
                   {.stream = stream.get(), .deadline = 500ms})
          .wait();
    } catch (const Error& error) {
      messages[static_cast<std::size_t>(c.rank())] = error.what();
    }
    if (c.rank() == 1) fake.let_go(stream.get());
    settle(on, stream);
  });
  for (const std::string& message : messages)
    CHECK_THAT(message,
               Catch::Matchers::Contains("rank 1 waits for GPU 1, which has not yet done"));
}

// Waiting and driving must not call what may block in CUDA; here the fake aborts if they do.
TEST_CASE("waiting calls nothing that may block") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  Setup setup;
  setup.size = 3;
  run_on_gpus(setup, "blocking", [&](Communicator& c, OnGpu& on) {
    GpuFloats values(on, 100'000, 1);
    for (int i = 0; i < 5; ++i) {
      const Work work = c.all_reduce(values.buffer(), values.buffer(), ReduceOp::max);
      fake.forbid_blocking(true);
      work.wait();
      fake.forbid_blocking(false);
    }
    expect(values.are(1), "wrong maximum");
  });
}

}  // namespace
}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
//
// Checks what a call says at once of buffers and streams that it cannot use.
#include "catch.h"
#include "gpu/gpu_ranks.h"

namespace rondo::testing {
namespace {

using Catch::Matchers::Contains;

Setup alone() {
  Setup setup;
  setup.size = 1;
  return setup;
}

template <class Function>
void check_refused(Errc code, const std::string& text, Function&& function) {
  std::string message = "nothing was thrown";
  std::error_code given;
  run_on_gpus(alone(), text, [&](Communicator& c, OnGpu& on) {
    try {
      function(c, on);
    } catch (const Error& error) {
      message = error.what();
      given = error.code();
    }
    // Nothing was started, and the communicator is unharmed.
    GpuFloats values(on, 100, 3);
    c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum).wait();
    expect(values.are(3), "the call after the refused one is wrong");
  });
  CHECK_THAT(message, Contains(text));
  CHECK(given == code);
}

TEST_CASE("a GPU that does not exist") {
  check_refused(Errc::invalid_argument, "all_reduce on rank 0: ", [](Communicator& c, OnGpu& on) {
    const GpuFloats values(on, 10, 1);
    Buffer buffer = values.buffer();
    buffer.device = 999;
    c.all_reduce(buffer, buffer, ReduceOp::sum).wait();
  });
}

TEST_CASE("host memory that is said to be on a GPU") {
  check_refused(
      Errc::invalid_argument,
      "broadcast on rank 0: in.device is 0, but in.data is in host memory: pass device -1",
      [](Communicator& c, OnGpu&) {
        float value = 1;
        const Buffer buffer{&value, 1, DType::f32, 0};
        c.broadcast(buffer, buffer, 0).wait();
      });
}

TEST_CASE("memory of another GPU") {
  if (gpus_of_tests() < 2) {
    std::puts("skipped: this machine has one GPU");
    return;
  }
  check_refused(Errc::invalid_argument, "in.device is 1, but in.data is in memory of GPU 0",
                [](Communicator& c, OnGpu& on) {
                  const GpuFloats values(on, 10, 1);
                  Buffer buffer = values.buffer();
                  buffer.device = 1;
                  c.all_reduce(buffer, buffer, ReduceOp::sum).wait();
                });
}

TEST_CASE("a buffer that goes beyond its memory") {
  check_refused(Errc::invalid_argument,
                "in has 11 f32 elements, 44 B, but its memory on GPU 0 ends after 40 B",
                [](Communicator& c, OnGpu& on) {
                  const GpuFloats values(on, 10, 1);
                  Buffer buffer = values.buffer();
                  buffer.count = 11;
                  c.all_reduce(buffer, buffer, ReduceOp::sum).wait();
                });
}

TEST_CASE("one buffer on a GPU, the other in host memory") {
  check_refused(Errc::invalid_argument, "in.device is 0 but out.device is -1",
                [](Communicator& c, OnGpu& on) {
                  const GpuFloats values(on, 10, 1);
                  std::vector<float> out(10);
                  c.all_reduce(values.buffer(), buffer_of(out), ReduceOp::sum).wait();
                });
}

TEST_CASE("a message from host memory that is said to be on a GPU") {
  check_refused(Errc::invalid_argument,
                "send on rank 0: in.device is 0, but in.data is in host memory: pass device -1",
                [](Communicator& c, OnGpu&) {
                  std::vector<float> values(10);
                  Buffer buffer = buffer_of(values);
                  buffer.device = 0;
                  c.send(buffer, 0).wait();
                });
}

TEST_CASE("a stream that is being captured") {
  if (FakeCuda::missing()) return;
  check_refused(Errc::unsupported, "the stream is being captured into a CUDA graph",
                [](Communicator& c, OnGpu& on) {
                  const GpuFloats values(on, 10, 1);
                  const device::Stream stream(on.gpu());
                  const FakeCuda fake;
                  fake.capture(stream.get(), true);
                  try {
                    c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum,
                                 {.stream = stream.get()})
                        .wait();
                  } catch (...) {
                    fake.capture(stream.get(), false);
                    throw;
                  }
                });
}

TEST_CASE("memory of a GPU from a communicator is zero, and may outlive it") {
  std::optional<Memory> memory;
  run_communicators(alone(), "allocate",
                    [&](Communicator& c, int) { memory = c.allocate(1000, gpus_of_tests() - 1); });
  CHECK(memory->bytes() == 1000);
  std::vector<std::byte> bytes(1000, std::byte{1});
  OnGpu(gpus_of_tests() - 1).copier.read(bytes, reinterpret_cast<device::Address>(memory->data()));
  CHECK(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("ranks that give host memory and memory of a GPU") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  // The root of a reduce only receives: no frame and no post shows it the mismatch.
  for (const bool rooted : {false, true}) {
    Setup setup;
    setup.over = over;
    std::vector<std::string> messages(2);
    run_on_gpus(setup, "both kinds", [&](Communicator& c, OnGpu& on) {
      const GpuFloats values(on, 100, 1);
      std::vector<float> host(100, 1);
      const Buffer buffer = c.rank() == 0 ? values.buffer() : buffer_of(host);
      try {
        if (rooted)
          c.reduce(buffer, buffer, ReduceOp::sum, 0).wait();
        else
          c.all_reduce(buffer, buffer, ReduceOp::sum).wait();
      } catch (const Error& error) {
        expect(error.code() == Errc::mismatch, error.what());
        messages[static_cast<std::size_t>(c.rank())] = error.what();
      }
    });
    for (const std::string& message : messages)
      CHECK_THAT(message, Contains(", on a GPU)") && Contains(" where rank "));
  }
}

}  // namespace
}  // namespace rondo::testing

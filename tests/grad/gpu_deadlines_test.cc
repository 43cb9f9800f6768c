// SPDX-License-Identifier: Apache-2.0
//
// Waits of gradient buckets, and of broadcast_parameters, for a GPU that does not come: each ends
// at the deadline, and says who waited for what.
#include <array>
#include <cmath>
#include <functional>
#include <thread>

#include "catch.h"
#include "grad/gpu.h"

namespace rondo::testing {
namespace {

using namespace std::chrono_literals;

// The last parameter has no elements.
constexpr Tensor shapes[] = {{3000}, {500}, {0}};
constexpr std::size_t empty = 2;

// Waits until the kernels that load a bucket are enqueued, which may be done by another thread.
void await_launches(const FakeCuda& fake, unsigned long before) {
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (fake.calls("cuLaunchKernel") == before) {
    expect(std::chrono::steady_clock::now() < until, "no bucket has started");
    std::this_thread::yield();
  }
}

// Calls something that must end at the deadline of 400 ms, which `setting` has set.
void expect_deadline(const std::string& setting, const std::function<void()>& call) {
  const auto began = std::chrono::steady_clock::now();
  std::string message;
  try {
    call();
  } catch (const Error& error) {
    expect(error.code() == Errc::deadline_exceeded, error.what());
    message = error.what();
  }
  // The number of the buckets counts those of other cases.
  for (const std::string& part :
       {std::string("rank 0: gradient buckets "),
        " (3 parameters, first 'p0'): GPU 0 has not done the gradients' kernels within the "
        "deadline of " +
            std::to_string(short_deadline.count()) +
            " ms: work that the program enqueued before keeps it busy, or hangs; find "
            "that work, or set a longer " +
            setting})
    expect(message.find(part) != std::string::npos, "the message: " + message);
  expect(std::chrono::steady_clock::now() - began < 30s, "it waited longer");
}

// Runs a case with the deadline of the buckets, and with that of the communicator.
void run_with_deadlines(
    GradientOptions options,
    const std::function<void(GradientBuckets&, OnGpu&, const std::string& setting)>& function) {
  const bool own = GENERATE(true, false);
  Setup setup = gpu_setup(1);
  setup.options.deadline = own ? std::chrono::milliseconds(60s) : short_deadline;
  options.rebuild = false;
  if (own) options.deadline = short_deadline;
  CHECK_NOTHROW(run_on_gpus(setup, "deadline", [&](Communicator& c, OnGpu& on) {
    GradientBuckets buckets(c, parameters_of(shapes, on.gpu().ordinal()), options);
    function(buckets, on, own ? "GradientOptions::deadline" : "Options::deadline");
  }));
}

// No bucket waits for the gradient without elements, but the end of the step does.
TEST_CASE("finish() waits for the GPU until the deadline", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  run_with_deadlines({}, [&](GradientBuckets& buckets, OnGpu& on, const std::string& setting) {
    const device::Stream late(on.gpu());
    buckets.begin_step();
    for (const std::size_t i : {1, 0}) buckets.ready(i);
    fake.hold(late.get());
    buckets.ready(empty, OnStream{late.get()});
    expect_deadline(setting, [&] { buckets.finish(); });
    fake.let_go(late.get());
    settle(on, late);
  });
}

// The bucket is loaded before the stream of finish(), and stored after that, because
// a parameter is unused.
TEST_CASE("norm() waits for the GPU until the deadline, and then can be asked again", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  run_with_deadlines(
      {.wire = DType::bf16}, [&](GradientBuckets& buckets, OnGpu& on, const std::string& setting) {
        const device::Stream stream(on.gpu()), late(on.gpu());
        const std::vector<float> ones(3000, 1);
        const std::size_t unused[] = {empty};
        const unsigned long before = fake.calls("cuLaunchKernel");
        buckets.begin_step({.unused = unused, .stream = stream.get()});
        for (const std::size_t i : {1, 0}) {
          const Buffer view = buckets.gradient(i);
          on.copier.write(address_of(view), std::as_bytes(std::span(ones).first(view.count)));
          buckets.ready(i, OnStream{stream.get()});
        }
        await_launches(fake, before);
        fake.hold(late.get());
        buckets.finish(OnStream{late.get()});
        expect_deadline(setting, [&] { (void)buckets.norm(); });
        fake.let_go(late.get());
        expect(buckets.norm() == std::sqrt(3500.0), "the norm");
        settle(on, stream);
        settle(on, late);
      });
}

TEST_CASE("broadcast_parameters waits for the GPU until the communicator's deadline", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  Setup setup = gpu_setup();
  setup.options.deadline = short_deadline;
  CHECK_NOTHROW(run_on_gpus(setup, "deadline", [&](Communicator& c, OnGpu& on) {
    const GpuFloats value(on, 100, 1);
    std::vector<Parameter> parameters = parameters_of(std::array{Tensor{100}}, on.gpu().ordinal());
    parameters[0].value = value.buffer().data;
    c.barrier().wait();
    fake.hold();
    refused(Errc::deadline_exceeded, "which has not yet done the work", [&] {
      const device::Current current(on.gpu());
      broadcast_parameters(c, parameters);
    });
    fake.let_go();
    fake.settle();
  }));
}

}  // namespace
}  // namespace rondo::testing

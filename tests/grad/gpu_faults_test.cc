// SPDX-License-Identifier: Apache-2.0
//
// Gradients on a GPU: what is refused, steps that fail in the middle, memory that goes away in
// them, and what a step must not do.
#include "catch.h"
#include "grad/gpu.h"

namespace rondo::testing {
namespace {

using Catch::Matchers::Contains;
using namespace std::chrono_literals;

constexpr Tensor two_shapes[] = {{3000}, {500}};

GradientBuckets buckets_on(Communicator& c, const OnGpu& on, const GradientOptions& options = {}) {
  return GradientBuckets(c, parameters_of(two_shapes, on.gpu().ordinal()), options);
}

TEST_CASE("gradients on a GPU on some ranks only, or on a GPU that is not there", "[gpu]") {
  if (FakeCuda::missing()) return;
  auto messages = messages_of(gpu_setup(3), [](Communicator& c, OnGpu& on) {
    GradientBuckets(c, parameters_of(two_shapes, c.rank() == 1 ? -1 : on.gpu().ordinal()));
  });
  for (const std::string& message : messages) {
    CHECK_THAT(message, Contains("ranks differ: rank 1 with"));
    CHECK_THAT(message, Contains("gradients in host memory; ranks 0, 2 with"));
    CHECK_THAT(message, Contains("gradients on a GPU"));
  }
  messages = messages_of(gpu_setup(2), [](Communicator& c, OnGpu&) {
    GradientBuckets(c, parameters_of(two_shapes, c.rank() == 1 ? 7 : 0));
  });
  for (const std::string& message : messages)
    CHECK_THAT(message,
               Contains("on rank 1: gradient buckets: gradients are on GPU 7: there is no GPU 7"));
}

TEST_CASE("gradients on a GPU: what is refused at once", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(gpu_setup(1), "refused", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    GradientBuckets buckets = buckets_on(c, on);
    std::vector<float> on_host(3000);
    OnGpu other(1);
    const GpuFloats elsewhere(other, 3000, 1), shorter(on, 100, 1), gradient(on, 3001, 1);
    const auto give = [&](const void* data) {
      return [&, data] { buckets.ready(0, data, OnStream{stream.get()}); };
    };
    refused(Errc::invalid_argument, "outside of a step",
            [&] { buckets.ready(0, OnStream{nullptr}); });
    buckets.begin_step();
    refused(Errc::invalid_argument, "is null", give(nullptr));
    refused(Errc::invalid_argument,
            "on rank 0: ready(): the gradient of 'p0' is in host memory, but buckets are on GPU 0",
            give(on_host.data()));
    refused(Errc::invalid_argument, "is in memory of GPU 1", give(elsewhere.buffer().data));
    refused(Errc::invalid_argument, "its memory on GPU 0 ends after", give(shorter.buffer().data));
    refused(Errc::invalid_argument, "which is no address of f32",
            give(static_cast<const std::byte*>(gradient.buffer().data) + 2));
    fake.capture(stream.get(), true);
    refused(Errc::unsupported, "on rank 0: ready(): the stream is being captured",
            give(gradient.buffer().data));
    refused(Errc::unsupported, "zero(): the stream is",
            [&] { buckets.zero(OnStream{stream.get()}); });
    refused(Errc::unsupported, "finish(): the stream",
            [&] { buckets.finish(OnStream{stream.get()}); });
    fake.capture(stream.get(), false);
    // Nothing has changed, and the step goes on.
    give(gradient.buffer().data)();
    buckets.ready(1, OnStream{stream.get()});
    buckets.finish();
    fake.capture(stream.get(), true);
    refused(Errc::unsupported, "begin_step(): the stream is",
            [&] { buckets.begin_step({.stream = stream.get()}); });
    fake.capture(stream.get(), false);
    std::vector<float> values(3000);
    on.copier.read(std::as_writable_bytes(std::span(values)), address_of(buckets.gradient(0)));
    expect(std::ranges::all_of(values, [](float value) { return value == 1; }), "wrong average");
  }));
}

// It was copied there: no kernel of a later part of the step reads it.
TEST_CASE("a gradient may go when its stream has passed ready()", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  GradientOptions options;
  options.wire = GENERATE(as<std::optional<DType>>(), std::nullopt, DType::bf16);
  CHECK_NOTHROW(run_on_gpus(gpu_setup(), "gone", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu()), late(on.gpu());
    MappedMemory gradient(on.gpu());
    std::vector<float> values(3000, 3);
    on.copier.write(address_of(gradient.buffer()), std::as_bytes(std::span(values)));
    GradientBuckets buckets = buckets_on(c, on, options);
    buckets.begin_step();
    fake.hold(late.get());
    buckets.ready(1, OnStream{late.get()});
    buckets.ready(0, gradient.data(), OnStream{stream.get()});
    settle(on, stream);
    {
      const device::Current current(on.gpu());
      gradient.unmap();
    }
    fake.let_go(late.get());
    buckets.finish();
    values.assign(3000, 0);
    on.copier.read(std::as_writable_bytes(std::span(values)), address_of(buckets.gradient(0)));
    expect(std::ranges::all_of(values, [](float value) { return value == 3; }), "wrong average");
  }));
}

TEST_CASE("a step on a GPU whose stream does not move ends at its deadline", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(gpu_setup(), "late", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    GradientBuckets buckets = buckets_on(c, on, {.wire = DType::bf16, .deadline = 300ms});
    const auto began = std::chrono::steady_clock::now();
    if (c.rank() == 1) fake.hold(stream.get());
    buckets.begin_step({.stream = stream.get()});
    for (const std::size_t i : {1, 0}) buckets.ready(i, OnStream{stream.get()});
    refused(Errc::deadline_exceeded, "which has not yet done the work",
            [&] { buckets.finish(OnStream{stream.get()}); });
    expect(std::chrono::steady_clock::now() - began < 5s, "it waited for the stream");
    fake.let_go(stream.get());
    settle(on, stream);
  }));
}

// The stream goes on long after the destructor.
TEST_CASE("buckets end in bounded time beside a stream that does not move", "[gpu][abandons]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  const bool local = GENERATE(false, true);
  run_on_gpus(gpu_setup(), "end", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    const GpuFloats gradient(on, 3000, 1);
    const auto began = std::chrono::steady_clock::now();
    fake.hold(stream.get());
    try {
      GradientBuckets buckets = buckets_on(c, on, {.wire = DType::bf16, .deadline = 300ms});
      std::optional<GradientBuckets::Accumulation> accumulation;
      if (local) accumulation.emplace(buckets);
      buckets.begin_step({.stream = local ? nullptr : stream.get()});
      buckets.ready(0, gradient.buffer().data, OnStream{stream.get()});
      throw std::runtime_error("a step fails");
    } catch (const std::runtime_error&) {
    }
    expect(std::chrono::steady_clock::now() - began < 5s, "it waited for the stream");
    fake.let_go(stream.get());
    settle(on, stream);
    fake.settle();
  });
}

// Each type has a launch of its own: two add up squares, a third their sums, and two multiply. The
// end of the buckets waits for the first one, which writes their memory, and gives that memory up
// when the stream is late.
TEST_CASE("clip() that fails half way leaves no kernel behind", "[gpu][abandons]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(gpu_setup(1), "half way", [&](Communicator& c, OnGpu& on) {
    constexpr Tensor two_types[] = {{3000}, {500, DType::f64}};
    const device::Stream stream(on.gpu()), late(on.gpu());
    {
      GradientBuckets buckets(c, parameters_of(two_types, on.gpu().ordinal()),
                              {.deadline = short_deadline});
      buckets.begin_step({.stream = stream.get()});
      for (const std::size_t i : {1, 0}) buckets.ready(i, OnStream{stream.get()});
      buckets.finish(OnStream{stream.get()});
      settle(on, stream);
      fake.hold(late.get());
      constexpr int out_of_memory = 2;
      fake.fail("cuLaunchKernel", 5, 1, out_of_memory);
      refused(Errc::system, "CUDA_ERROR_OUT_OF_MEMORY",
              [&] { buckets.clip(0, OnStream{late.get()}); });
    }
    fake.let_go(late.get());
    settle(on, late);
  }));
}

// Here the fake aborts in a function that may block.
TEST_CASE("ready() calls nothing that may block, and steps make nothing anew", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  const DType wire = GENERATE(DType::bf16, DType::f16);
  constexpr const char* makers[] = {"cuEventCreate", "cuStreamCreateWithPriority", "cuMemAlloc",
                                    "cuMemHostAlloc", "cuModuleGetFunction"};
  CHECK_NOTHROW(run_on_gpus(gpu_setup(1), "blocking", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    GradientOptions options;
    options.wire = wire;
    GradientBuckets buckets(c, parameters_of(std::vector<Tensor>(400, {1000}), on.gpu().ordinal()),
                            options);
    unsigned long made = 0, launched = 0;
    for (int step = 0; step < 5; ++step) {
      const unsigned long before = fake.calls("cuLaunchKernel");
      fake.forbid_blocking(step > 0);  // the communicator makes its staging memory in the first one
      buckets.zero(OnStream{stream.get()});
      buckets.begin_step({.stream = stream.get()});
      for (std::size_t i = 400; i-- > 0;) buckets.ready(i, OnStream{stream.get()});
      buckets.finish(OnStream{stream.get()});
      fake.forbid_blocking(false);
      launched = fake.calls("cuLaunchKernel") - before;
      unsigned long now = 0;
      for (const char* maker : makers) now += fake.calls(maker);
      expect(step < 3 || now == made, "objects of CUDA were made");
      made = now;
    }
    // 1.6 MB of gradients, which one kernel zeroes: a bucket of 1 MiB and a smaller one. With f16
    // loads go parameter by parameter, and a kernel takes 101 of them: for the two buckets it takes
    // five kernels to load and two to store.
    expect(buckets.statistics().size() == 2, "two buckets");
    expect(launched == 1 + (wire == DType::bf16 ? 4 : 5 + 2),
           [&] { return std::to_string(launched) + " kernels"; });
    settle(on, stream);
  }));
}

}  // namespace
}  // namespace rondo::testing

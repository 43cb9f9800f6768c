// SPDX-License-Identifier: Apache-2.0
//
// Tests what only layers on GPUs do: streams, mismatches that are found later, memory of a GPU that
// is refused, and GPUs that fail.
#include <functional>

#include "bn/layer/device/objects.h"
#include "bn/places.h"

namespace rondo::testing {
namespace {

using Catch::Matchers::Contains;
using namespace std::chrono_literals;

constexpr std::size_t gpu_channels = 6, gpu_spatial = 10, gpu_each = 3;

Batch gpu_batch(int size, std::uint64_t seed) {
  return stored(
      draw_batch(static_cast<std::size_t>(size) * gpu_each, gpu_channels, gpu_spatial, seed),
      DType::f32);
}
Reference gpu_reference(const Batch& x, const Batch& dy) {
  return Reference(x, dy, Numbers(gpu_channels, 1), Numbers(gpu_channels, 0), 1e-5);
}
// A rank's three samples of a batch.
Placed part(Rank& rank, const Batch& batch) {
  return {rank, DType::f32, batch, {static_cast<std::size_t>(rank.number) * gpu_each, gpu_each}};
}
Step gpu_step(Rank& rank, const Batch& x, const Batch& dy) {
  return {rank, DType::f32, x, dy, {static_cast<std::size_t>(rank.number) * gpu_each, gpu_each}};
}
// Runs the function on every rank. Returns each rank's message; empty if it threw none.
std::vector<std::string> messages_on_gpus(const Setup& setup,
                                          const std::function<void(Rank&)>& function) {
  std::vector<std::string> messages(static_cast<std::size_t>(setup.size));
  run_on(Place::gpu, setup, "mistake", [&](Rank& rank) {
    try {
      function(rank);
    } catch (const Error& error) {
      messages[static_cast<std::size_t>(rank.number)] = error.what();
    }
  });
  return messages;
}
bool ended(Rank& rank, const device::Stream& stream) {
  device::Event end(rank.on->gpu());
  const device::Current current(rank.on->gpu());
  rank.on->gpu().check(end.record(stream.get()), "record");
  return device::wait_for(end, 20ms) != device::not_ready;
}

TEST_CASE("bn on a GPU: the stream orders both ends, also when it changes", "[gpu]") {
  run_on(Place::gpu, 2, "streams", [&](Rank& rank) {
    const device::Gpu& gpu = rank.on->gpu();
    SyncBatchNorm layer = rank.layer(gpu_channels, {.name = "bn"});
    std::vector<device::Stream> streams;
    for (int i = 0; i < 3; ++i) streams.emplace_back(gpu);
    Step step = gpu_step(rank, gpu_batch(2, 0), gpu_batch(2, 0));
    Placed copied = part(rank, gpu_batch(2, 0));
    device::PinnedMemory in(gpu, step.x.bytes().size()), out(gpu, in.bytes());
    const auto address_of = [](const Placed& tensor) {
      return reinterpret_cast<device::Address>(tensor.view().data);
    };
    for (std::uint64_t number = 0; number < 9; ++number) {
      // Each step on another stream than the one before, which may still be under way.
      const device::Stream& stream = streams[number % streams.size()];
      const Batch batch = gpu_batch(2, number);
      // The caller's memory is the caller's affair.
      settle(*rank.on, streams[(number + 2) % streams.size()]);
      std::memcpy(in.data(), part(rank, batch).bytes().data(), in.bytes());
      const auto on_stream = [&](auto copy, auto to, auto from) {
        const device::Current current(gpu);
        gpu.check(copy(to, from, in.bytes(), stream.get()), "copy");
      };
      on_stream(gpu.driver().copy_to_device, address_of(step.x), in.data());
      layer.set_stream(stream.get());
      step.forward(layer);
      on_stream(gpu.driver().copy_to_host, out.data(), address_of(step.y));
      layer.backward(step.pass, step.x.view(), step.y.view(), step.dx.view(), {});
      settle(*rank.on, stream);
      const Reference wanted = gpu_reference(batch, batch);
      step.y.expect_near(wanted.y, 1e-5, "y");
      rank.write(copied.view().data, {static_cast<const std::byte*>(out.data()), out.bytes()});
      copied.expect_near(wanted.y, 1e-5, "the copy of y that came behind it");
    }
  });
}

// The layer's coefficients are those of the evaluation until its stream has used them.
TEST_CASE("bn on a GPU: an evaluation on another stream in the middle of a pass", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  run_on(Place::gpu, 2, "evaluation", [&](Rank& rank) {
    SyncBatchNorm layer = rank.layer(gpu_channels, {.name = "bn"});
    const device::Stream &one = *rank.stream, other(rank.on->gpu());
    Placed x = part(rank, gpu_batch(2, 1)), y = part(rank, gpu_batch(2, 1)),
           wanted = part(rank, gpu_batch(2, 1)), evaluated = part(rank, gpu_batch(2, 1));
    BatchNormPass pass;
    for (int i = 0; i < 3; ++i) pass = layer.forward(x.view(), y.view());
    layer.evaluate(x.view(), wanted.view());
    x.set(gpu_batch(2, 2));
    layer.evaluate(x.view(), wanted.view());
    rank.settle();
    for (const bool backward : {false, true}) {
      layer.set_stream(one.get());
      backward ? layer.begin_backward(pass, x.view(), y.view()) : layer.begin_forward(x.view());
      fake.hold(other.get());
      layer.set_stream(other.get());
      layer.evaluate(x.view(), evaluated.view());
      if (backward)
        layer.end_backward(y.view(), {});
      else
        pass = layer.end_forward(y.view());
      // Without the order this stream ends first.
      expect(!ended(rank, one), "the streams are not ordered");
      fake.let_go(other.get());
      settle(*rank.on, other);
      expect(backward || wanted.bytes() == evaluated.bytes(), "other values");
    }
    rank.settle();
  });
}

TEST_CASE("bn on a GPU: ranks at different layers or steps, noticed in the next pass", "[gpu]") {
  for (const bool skips : {true, false}) {
    const auto messages = messages_on_gpus(ranks(3), [&](Rank& rank) {
      SyncBatchNorm a = rank.layer(gpu_channels, {.name = "a"}),
                    b = rank.layer(gpu_channels, {.name = "b"}),
                    d = rank.layer(gpu_channels, {.name = "d"});
      const Step step = gpu_step(rank, gpu_batch(3, 1), gpu_batch(3, 1));
      for (SyncBatchNorm* layer : {&a, &b, &d}) step.forward(*layer);
      const bool wrong = rank.number == 1;
      if (wrong && !skips) {
        SyncBatchNorm other = rank.layer(gpu_channels, {.name = "other", .epsilon = 2});
        // The first pass of a layer looks at its sums at once, but does not tell at once.
        step.forward(other);
      } else {
        step.forward(wrong ? b : a);
      }
      step.forward(d);
      rank.settle();
    });
    for (const std::string& message : messages) {
      CHECK_THAT(message, Contains("batch norm: ranks differ: rank 1 at layer "));
      CHECK_THAT(message, Contains("ranks 0, 2 at layer a forward step 2"));
    }
    CHECK_THAT(messages[0],
               Contains(skips ? "layer b forward step 2" : "layer other forward step 1"));
  }
}

TEST_CASE("bn on a GPU: the message outlives the layer that it is of", "[gpu]") {
  const auto messages = messages_on_gpus(ranks(2), [&](Rank& rank) {
    std::optional<SyncBatchNorm> a(rank.layer(gpu_channels, {.name = "a"}));
    SyncBatchNorm b = rank.layer(gpu_channels, {.name = "b"});
    const Step of_a = gpu_step(rank, gpu_batch(2, 1), gpu_batch(2, 1)),
               of_b = gpu_step(rank, gpu_batch(2, 1), gpu_batch(2, 1));
    of_a.forward(*a);
    of_b.forward(b);
    of_a.forward(*a);
    rank.number == 0 ? of_a.backward(*a) : of_b.backward(b);
    a.reset();
    of_b.forward(b);
  });
  for (const std::string& message : messages)
    CHECK_THAT(message, Contains("rank 0 at layer a backward step 2") &&
                            Contains("rank 1 at layer b backward step 1"));
}

TEST_CASE("bn on a GPU: a GPU on some ranks only", "[gpu]") {
  const auto messages = messages_on_gpus(ranks(2), [&](Rank& rank) {
    Rank mine(rank.c, rank.number == 0 ? Place::gpu : Place::processor);
    SyncBatchNorm layer = mine.layer(gpu_channels);
    gpu_step(mine, gpu_batch(2, 1), gpu_batch(2, 1)).forward(layer);
  });
  for (const std::string& message : messages)
    CHECK_THAT(message, Contains("or is on a GPU of some ranks only"));
}

TEST_CASE("bn on a GPU: a rank that leaves, and a GPU that fails", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  for (const bool fails : {false, true}) {
    Setup setup = ranks(2);
    setup.options.deadline = 2s;
    const auto messages = messages_on_gpus(setup, [&](Rank& rank) {
      SyncBatchNorm layer = rank.layer(gpu_channels);
      const Step step = gpu_step(rank, gpu_batch(2, 1), gpu_batch(2, 1));
      step.forward(layer);
      step.forward(layer);
      rank.settle();
      if (rank.number == 1) {
        if (!fails) return;
        fake.break_gpu(1);
      }
      for (int i = 0; i < 3; ++i) step.forward(layer);
    });
    if (fails) CHECK_THAT(messages[1], Contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
    CHECK_THAT(messages[0], Contains("rank 1"));
    fake.clear();
    for (const int ordinal : {0, 1}) fake.break_gpu(ordinal, 0);
  }
}

TEST_CASE("bn on a GPU: what is refused", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  run_on(Place::gpu, 1, "refused", [&](Rank& rank) {
    Rank on_host(rank.c, Place::processor);
    SyncBatchNorm layer = rank.layer(gpu_channels, {.name = "bn"}),
                  host = on_host.layer(gpu_channels, {.name = "host"});
    const Placed on_x = part(rank, gpu_batch(1, 1)), on_y = part(rank, gpu_batch(1, 1)),
                 in_host = part(on_host, gpu_batch(1, 1));
    const Activations x = on_x.view(), y = on_y.view(), h = in_host.view();
    refused("layer bn: x is in host memory, but the layer is on GPU 0",
            [&] { layer.forward(h, y); });
    OnGpu other(1);
    const device::DeviceMemory elsewhere(other.gpu(), 4096);
    Activations there = y, longer = x;
    there.data = reinterpret_cast<void*>(elsewhere.address());
    refused("y is in memory of GPU 1, but the layer is on GPU 0", [&] { layer.forward(x, there); });
    longer.samples *= 2;
    refused("x has 1.406 KiB, but its memory on GPU 0 ends after 721 B",
            [&] { layer.begin_forward(longer); });
    refused("gamma must be 6 f64, f32, f16 or bf16 in memory of GPU 0, not 6 f32 in host memory",
            [&] { layer.bind_parameters(host.buffers().gamma, host.buffers().beta); });
    refused("in host memory, not 6 f32 of a GPU",
            [&] { host.bind_parameters(layer.buffers().gamma, layer.buffers().beta); });
    fake.capture(rank.stream->get(), true);
    refused(Errc::unsupported, "the stream is being captured into a CUDA graph",
            [&] { layer.forward(x, y); });
    fake.capture(rank.stream->get(), false);
    refused("there is no GPU 7", [&] { SyncBatchNorm(rank.c, gpu_channels, {.device = 7}); });
    layer.forward(x, y);
    rank.settle();
  });
}

TEST_CASE("bn on a GPU: a new stream in the middle of a pass is that of the next pass", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  run_on(Place::gpu, 1, "next stream", [&](Rank& rank) {
    const device::Stream second(rank.on->gpu());
    SyncBatchNorm layer = rank.layer(gpu_channels);
    const Batch batch = gpu_batch(1, 1);
    Step step = gpu_step(rank, batch, batch);
    step.forward(layer);
    step.y.set(batch);
    layer.begin_forward(step.x.view());
    layer.set_stream(second.get());
    fake.hold(second.get());
    layer.end_forward(step.y.view());
    step.y.expect_near(gpu_reference(batch, batch).y, 1e-5, "y");
    fake.let_go(second.get());
    step.backward(layer);
    settle(*rank.on, second);
  });
}

TEST_CASE("bn on a GPU: what was launched before a launch that fails keeps its order", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  run_on(Place::gpu, 1, "failed launch", [&](Rank& rank) {
    const device::Stream other(rank.on->gpu());
    SyncBatchNorm layer = rank.layer(gpu_channels);
    const Step step = gpu_step(rank, gpu_batch(1, 1), gpu_batch(1, 1));
    step.forward(layer);
    rank.settle();
    fake.hold(rank.stream->get());
    // The sums are launched, and what folds them is not.
    fake.fail("cuLaunchKernel", 2, 1, 2);
    refused(Errc::system, "cuLaunchKernel of rondo_bn_fold",
            [&] { layer.begin_forward(step.x.view()); });
    layer.set_stream(other.get());
    layer.evaluate(step.x.view(), step.y.view());
    // The evaluation waits for the sums: both use the memory of the layer.
    expect(!ended(rank, other), "the streams are not ordered");
    fake.let_go(rank.stream->get());
    settle(*rank.on, other);
  });
}

TEST_CASE("bn on a GPU: destructors share the time that they wait for a GPU that hangs", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  constexpr auto time = 400ms;
  const layer::GpuKernels kernels(0, time);
  const device::Stream stream(kernels.gpu());
  std::vector<layer::StreamUse> uses;
  fake.hold(stream.get());
  for (int i = 0; i < 4; ++i) {
    const device::Current current(kernels.gpu());
    uses.emplace_back(kernels).end(stream.get());
  }
  const auto began = std::chrono::steady_clock::now();
  for (const layer::StreamUse& use : uses) CHECK_FALSE(use.settle());
  const auto waited = std::chrono::steady_clock::now() - began;
  CHECK(waited >= time);
  CHECK(waited < 3 * time);
  fake.let_go(stream.get());
  fake.settle();
  for (const layer::StreamUse& use : uses) CHECK(use.settle());
}

TEST_CASE("bn on a GPU: no function that may block, and nothing waits for a kernel", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  run_on(Place::gpu, 2, "steady", [&](Rank& rank) {
    SyncBatchNorm first = rank.layer(gpu_channels, {.name = "1"}),
                  second = rank.layer(gpu_channels, {.name = "2"});
    const Step step = gpu_step(rank, gpu_batch(2, 1), gpu_batch(2, 1));
    const Activations x = step.x.view(), y = step.y.view(), z = step.dy.view(), dx = step.dx.view();
    const auto run = [&] {
      const BatchNormPass one = first.forward(x, y), two = second.forward(y, z);
      second.backward(two, y, x, dx, {});
      first.backward(one, x, dx, dx, {});
    };
    run();
    run();
    fake.forbid_blocking(true);
    for (int i = 0; i < 3; ++i) run();
    fake.forbid_blocking(false);
    rank.settle();
  });
}

}  // namespace
}  // namespace rondo::testing

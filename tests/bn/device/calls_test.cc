// SPDX-License-Identifier: Apache-2.0
//
// Streams, passes as objects, calls for several layers, fused additions and ReLUs, memory of the
// caller, and what is refused or fails, for layers on GPUs of the fake driver.
#include <thread>

#include "bn/device/gpu_tensors.h"
#include "catch.h"

namespace rondo::testing {
namespace {

using Catch::Matchers::Contains;
using namespace std::chrono_literals;

constexpr std::size_t channels = 6, spatial = 10, each = 3;

Tensor part(const Batch& batch, int rank) {
  return Tensor(DType::f32, TensorLayout::nchw, batch, static_cast<std::size_t>(rank) * each, each);
}
Tensor blank() {
  return Tensor(DType::f32, TensorLayout::nchw, each, channels, spatial);
}
Batch batch_of(int size, std::uint64_t seed) {
  return stored(draw_batch(static_cast<std::size_t>(size) * each, channels, spatial, seed),
                DType::f32);
}
// Compares a rank's part of a batch.
void expect_part(GpuTensor& got, const Numbers& wanted, int rank, const std::string& what,
                 double tolerance = 1e-5) {
  constexpr std::size_t count = each * channels * spatial;
  Batch batch{each, channels, spatial, Numbers(count)};
  got.read().unpack(batch, 0);
  const auto begin = wanted.begin() + static_cast<std::ptrdiff_t>(count) * rank;
  expect_near_by_channel(batch, Numbers(begin, begin + static_cast<std::ptrdiff_t>(count)),
                         tolerance, what);
}
Reference reference_of(const Batch& x, const Batch& dy) {
  return Reference(x, dy, Numbers(channels, 1), Numbers(channels, 0), 1e-5);
}

TEST_CASE("bn on a GPU: the stream orders both ends, also when it changes") {
  CHECK_NOTHROW(run_on_gpus(setup_of(2), "streams", [&](Communicator& c, OnGpu& on) {
    SyncBatchNorm layer(c, channels, {.name = "bn", .device = on.gpu().ordinal()});
    std::vector<device::Stream> streams;
    for (int i = 0; i < 3; ++i) streams.emplace_back(on.gpu());
    GpuTensor x(on, blank()), y(on, blank()), dy(on, blank()), dx(on, blank());
    device::PinnedMemory in(on.gpu(), blank().bytes().size()), out(on.gpu(), in.bytes());
    const device::CudaDriver& driver = on.gpu().driver();
    for (std::uint64_t step = 0; step < 9; ++step) {
      // Each step on another stream than the one before, which may still be under way.
      const device::Stream& stream = streams[step % streams.size()];
      const Batch batch = batch_of(2, step);
      const Tensor mine = part(batch, c.rank());
      // The caller's memory is the caller's affair.
      settle(on, streams[(step + 2) % streams.size()]);
      std::memcpy(in.data(), mine.bytes().data(), in.bytes());
      const auto address_of = [](GpuTensor& tensor) {
        return reinterpret_cast<device::Address>(tensor.view().data);
      };
      {
        const device::Current current(on.gpu());
        on.gpu().check(driver.copy_to_device(address_of(x), in.data(), in.bytes(), stream.get()),
                       "copy");
      }
      layer.set_stream(stream.get());
      layer.forward(x.view(), y.view());
      {
        const device::Current current(on.gpu());
        on.gpu().check(driver.copy_to_host(out.data(), address_of(y), out.bytes(), stream.get()),
                       "copy");
      }
      layer.backward(x.view(), y.view(), dx.view());
      settle(on, stream);
      const Reference wanted = reference_of(batch, batch);
      expect_part(y, wanted.y, c.rank(), "y");
      Tensor copied = blank();
      std::memcpy(copied.view().data, out.data(), out.bytes());
      dy.set(copied);
      expect_part(dy, wanted.y, c.rank(), "the copy of y that came behind it");
    }
  }));
}

// The layer's coefficients are those of the evaluation until its stream has used them.
TEST_CASE("bn on a GPU: an evaluation on another stream in the middle of a pass") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(setup_of(2), "evaluation", [&](Communicator& c, OnGpu& on) {
    SyncBatchNorm layer(c, channels, {.name = "bn", .device = on.gpu().ordinal()});
    const device::Stream one(on.gpu()), other(on.gpu());
    GpuTensor x(on, part(batch_of(2, 1), c.rank())), y(on, blank());
    GpuTensor wanted(on, blank()), evaluated(on, blank());
    layer.set_stream(one.get());
    for (int i = 0; i < 3; ++i) layer.forward(x.view(), y.view());
    layer.evaluate(x.view(), wanted.view());
    settle(on, one);
    x.set(part(batch_of(2, 2), c.rank()));
    layer.evaluate(x.view(), wanted.view());
    settle(on, one);
    for (const bool backward : {false, true}) {
      layer.set_stream(one.get());
      backward ? layer.begin_backward(x.view(), y.view()) : layer.begin_forward(x.view());
      fake.hold(other.get());
      layer.set_stream(other.get());
      layer.evaluate(x.view(), evaluated.view());
      backward ? layer.end_backward(y.view()) : layer.end_forward(y.view());
      {
        // Without the order this stream ends first.
        device::Event end(on.gpu());
        const device::Current current(on.gpu());
        on.gpu().check(end.record(one.get()), "record");
        expect(device::wait_for(end, 20ms) == device::not_ready, "the streams are not ordered");
      }
      fake.let_go(other.get());
      settle(on, one);
      settle(on, other);
      expect(backward || wanted.read().bytes() == evaluated.read().bytes(), "other values");
    }
  }));
}

TEST_CASE("bn on a GPU: passes as objects, in another order, longer than their layer") {
  CHECK_NOTHROW(run_on_gpus(setup_of(2), "passes", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    std::optional<SyncBatchNorm> layer(
        std::in_place, c, channels, BatchNormOptions{.name = "bn", .device = on.gpu().ordinal()});
    layer->set_stream(stream.get());
    const Batch first = batch_of(2, 1), second = batch_of(2, 2), gradient = batch_of(2, 3);
    GpuTensor x1(on, part(first, c.rank())), x2(on, part(second, c.rank()));
    GpuTensor dy(on, part(gradient, c.rank())), y(on, blank()), dx(on, blank());
    for (int round = 0; round < 3; ++round) {
      layer->forward(x1.view(), y.view());
      BatchNormPass one = layer->take_pass();
      layer->forward(x2.view(), y.view());
      BatchNormPass two = layer->take_pass();
      layer->backward(two, x2.view(), dy.view(), dx.view(), {});
      settle(on, stream);
      expect_part(dx, reference_of(second, gradient).dx, c.rank(), "dx of the second");
      const BatchNormGradients to{layer->gamma_gradient(), layer->beta_gradient()};
      layer->backward(one, x1.view(), dy.view(), dx.view(), to);
      settle(on, stream);
      expect_part(dx, reference_of(first, gradient).dx, c.rank(), "dx of the first");
      layer->backward_parameters(one, x1.view(), dy.view(), to);
      settle(on, stream);
      const Numbers sums = numbers_on(on, layer->gamma_gradient_sum_buffer());
      expect_near(sums, reference_of(first, gradient).dgamma, 1e-6, "gamma's sum");
      std::thread([dropped = std::move(two)] {}).join();
    }
    BatchNormPass frozen = layer->evaluate_pass(x1.view(), y.view());
    layer->backward(frozen, x1.view(), dy.view(), dx.view(), {});
    settle(on, stream);
    Numbers wanted = gradient.values;
    const Numbers variance = numbers_on(on, layer->running_variance());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      wanted[i] /= std::sqrt(variance[i / spatial % channels] + 1e-5);
    expect_part(dx, wanted, c.rank(), "dx of frozen statistics");
    layer->forward(x1.view(), y.view());
    BatchNormPass last = layer->take_pass();
    layer.reset();
    std::thread([dropped = std::move(last)] {}).join();
  }));
}

TEST_CASE("bn on a GPU: evaluation without running statistics, and its backward pass") {
  CHECK_NOTHROW(run_on_gpus(setup_of(1), "own", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm layer(c, channels, {.track_running = false, .device = on.gpu().ordinal()});
    layer.set_stream(stream.get());
    const Batch batch = batch_of(1, 1), gradient = batch_of(1, 2);
    GpuTensor x(on, part(batch, 0)), dy(on, part(gradient, 0)), y(on, blank()), dx(on, blank());
    for (int round = 0; round < 2; ++round) {
      BatchNormPass pass = layer.evaluate_pass(x.view(), y.view());
      layer.backward(pass, x.view(), dy.view(), dx.view(),
                     {layer.gamma_gradient(), layer.beta_gradient()});
      settle(on, stream);
      const Reference wanted = reference_of(batch, gradient);
      expect_part(y, wanted.y, 0, "y");
      expect_part(dx, wanted.dx, 0, "dx");
      expect_near(numbers_on(on, layer.gamma_gradient()), wanted.dgamma, 1e-6, "gamma's gradient");
    }
  }));
}

TEST_CASE("bn on a GPU: several layers in one call") {
  CHECK_NOTHROW(run_on_gpus(setup_of(3), "several", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    const BatchNormOptions options{.device = on.gpu().ordinal()};
    SyncBatchNorm a(c, channels, options), b(c, channels, options);
    a.set_stream(stream.get());
    b.set_stream(stream.get());
    SyncBatchNorm* const layers[] = {&a, &b};
    GpuTensor y1(on, blank()), y2(on, blank()), dx1(on, blank()), dx2(on, blank());
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Batch first = batch_of(3, step), second = batch_of(3, 10 + step), dy = batch_of(3, 7);
      GpuTensor x1(on, part(first, c.rank())), x2(on, part(second, c.rank()));
      GpuTensor on_dy(on, part(dy, c.rank()));
      const Activations xs[] = {x1.view(), x2.view()}, ys[] = {y1.view(), y2.view()},
                        dys[] = {on_dy.view(), on_dy.view()}, dxs[] = {dx1.view(), dx2.view()};
      SyncBatchNorm::begin_forward(layers, xs);
      SyncBatchNorm::end_forward(layers, ys);
      SyncBatchNorm::begin_backward(layers, xs, dys);
      SyncBatchNorm::end_backward(layers, dxs);
      settle(on, stream);
      expect_part(y1, reference_of(first, dy).y, c.rank(), "y of the first");
      expect_part(y2, reference_of(second, dy).y, c.rank(), "y of the second");
      expect_part(dx1, reference_of(first, dy).dx, c.rank(), "dx of the first");
      expect_part(dx2, reference_of(second, dy).dx, c.rank(), "dx of the second");
    }
  }));
}

TEST_CASE("bn on a GPU: an addition and a ReLU in the same pass") {
  CHECK_NOTHROW(run_on_gpus(setup_of(2), "fused", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm layer(c, channels, {.device = on.gpu().ordinal()});
    layer.set_stream(stream.get());
    const Batch x = batch_of(2, 1), z = batch_of(2, 2), dy = batch_of(2, 3);
    GpuTensor on_x(on, part(x, c.rank())), on_z(on, part(z, c.rank())), on_y(on, blank()),
        on_dy(on, part(dy, c.rank())), dx(on, blank()), dz(on, blank());
    const Reference plain = reference_of(x, dy);
    Batch y = x, masked = dy;
    for (std::size_t i = 0; i < y.size(); ++i) {
      y.values[i] = std::max(plain.y[i] + z.values[i], 0.0);
      if (y.values[i] == 0) masked.values[i] = 0;
    }
    const Reference wanted = reference_of(x, masked);
    for (int step = 0; step < 2; ++step) {
      layer.forward(on_x.view(), on_y.view(), {.relu = true, .add = on_z.view()});
      layer.backward(on_x.view(), on_dy.view(), dx.view(),
                     {.relu = true, .add = dz.view(), .y = on_y.view()});
      settle(on, stream);
      expect_part(on_y, y.values, c.rank(), "y");
      expect_part(dx, wanted.dx, c.rank(), "dx");
      expect_part(dz, masked.values, c.rank(), "dz", 0);
    }
    layer.evaluate(on_x.view(), on_y.view(), {.relu = true});
    settle(on, stream);
  }));
}

TEST_CASE("bn on a GPU: parameters, statistics and gradients of the caller, of other types") {
  CHECK_NOTHROW(run_on_gpus(setup_of(2), "bound", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm layer(c, channels, {.device = on.gpu().ordinal()});
    layer.set_stream(stream.get());
    const device::DeviceMemory memory(on.gpu(), 1024);
    const auto bound = [&](std::size_t which, DType type) {
      // At odd addresses.
      return Buffer{reinterpret_cast<void*>(memory.address() + 1 + 100 * which), channels, type,
                    on.gpu().ordinal()};
    };
    const Buffer gamma = bound(0, DType::f64), beta = bound(1, DType::f32),
                 mean = bound(2, DType::f64), variance = bound(3, DType::f32),
                 gamma_gradient = bound(4, DType::f32), beta_gradient = bound(5, DType::f64);
    Numbers some(channels);
    for (std::size_t i = 0; i < channels; ++i) some[i] = 0.5 * static_cast<double>(i) - 1;
    for (const Buffer& buffer : {gamma, beta, mean, variance, gamma_gradient, beta_gradient})
      assign_on(on, buffer, some);
    layer.bind_parameters(gamma, beta);
    layer.bind_statistics(mean, variance);
    layer.bind_gradients(gamma_gradient, beta_gradient);
    const Batch x = batch_of(2, 1), dy = batch_of(2, 3);
    GpuTensor on_x(on, part(x, c.rank())), on_y(on, blank()), on_dy(on, part(dy, c.rank())),
        dx(on, blank());
    layer.forward(on_x.view(), on_y.view());
    layer.backward(on_x.view(), on_dy.view(), dx.view());
    settle(on, stream);
    const Reference wanted(x, dy, some, some, 1e-5);
    expect_part(on_y, wanted.y, c.rank(), "y");
    expect_part(dx, wanted.dx, c.rank(), "dx");
    Numbers running = some, spread = some;
    const double count = 2 * each * spatial;
    for (std::size_t i = 0; i < channels; ++i) {
      running[i] = 0.9 * some[i] + 0.1 * wanted.mean[i];
      spread[i] = 0.9 * some[i] + 0.1 * wanted.variance[i] * count / (count - 1);
    }
    expect_near(numbers_on(on, mean), running, 1e-12, "running mean");
    expect_near(numbers_on(on, variance), spread, 1e-6, "running variance");
    // f16 and bf16 are read and rounded as on the processor.
    for (const DType type : {DType::f16, DType::bf16}) {
      const Buffer shorter = bound(0, type);
      std::vector<std::uint16_t> bits(channels);
      for (std::size_t i = 0; i < channels; ++i)
        bits[i] = static_cast<std::uint16_t>(encode(type, some[i]));
      on.copier.write(reinterpret_cast<device::Address>(shorter.data),
                      std::as_bytes(std::span(bits)));
      layer.bind_parameters(shorter, beta);
      layer.forward(on_x.view(), on_y.view());
      settle(on, stream);
      expect_part(on_y, wanted.y, c.rank(), "y with a short gamma");
      layer.bind_gradients(shorter, beta_gradient);
      BatchNormPass pass = layer.take_pass();
      layer.backward(pass, on_x.view(), on_dy.view(), dx.view(), {.gamma = shorter});
      settle(on, stream);
      on.copier.read(std::as_writable_bytes(std::span(bits)),
                     reinterpret_cast<device::Address>(shorter.data));
      const double largest = 1e3;
      for (const std::uint16_t each_bits : bits) {
        const float value = type == DType::bf16
                                ? std::bit_cast<float>(static_cast<std::uint32_t>(each_bits) << 16)
                                : 0.0F;
        expect(std::abs(value) < largest, "a gradient of gamma is not one");
      }
    }
  }));
}

TEST_CASE("bn on a GPU: all ranks have the same bits, run after run") {
  std::vector<Numbers> all;
  for (int run = 0; run < 2; ++run) {
    std::vector<Numbers> numbers(3);
    CHECK_NOTHROW(run_on_gpus(setup_of(3), "bits", [&](Communicator& c, OnGpu& on) {
      const device::Stream stream(on.gpu());
      SyncBatchNorm layer(c, channels, {.device = on.gpu().ordinal()});
      layer.set_stream(stream.get());
      GpuTensor x(on, part(batch_of(3, 1), c.rank())), y(on, blank());
      for (int step = 0; step < 3; ++step) {
        layer.forward(x.view(), y.view());
        layer.backward(x.view(), y.view(), y.view());
      }
      settle(on, stream);
      Numbers& mine = numbers[static_cast<std::size_t>(c.rank())];
      for (const Buffer& buffer :
           {layer.mean_buffer(), layer.variance_buffer(), layer.running_mean(),
            layer.running_variance(), layer.gamma_gradient_sum_buffer(), layer.point()})
        for (const double number : numbers_on(on, buffer)) mine.push_back(number);
    }));
    CHECK((numbers[0] == numbers[1]));
    CHECK((numbers[0] == numbers[2]));
    all.push_back(numbers[0]);
  }
  CHECK((all[0] == all[1]));
}

TEST_CASE("bn on a GPU: ranks at different layers or steps, noticed in the next pass") {
  for (const bool skips : {true, false}) {
    const auto messages = messages_of(setup_of(3), [&](Communicator& c, OnGpu& on) {
      const device::Stream stream(on.gpu());
      const int device = on.gpu().ordinal();
      SyncBatchNorm a(c, channels, {.name = "a", .device = device}),
          b(c, channels, {.name = "b", .device = device}),
          d(c, channels, {.name = "d", .device = device});
      for (SyncBatchNorm* layer : {&a, &b, &d}) layer->set_stream(stream.get());
      GpuTensor x(on, part(batch_of(3, 1), c.rank())), y(on, blank());
      for (SyncBatchNorm* layer : {&a, &b, &d}) layer->forward(x.view(), y.view());
      const bool wrong = c.rank() == 1;
      if (wrong && !skips) {
        std::optional<SyncBatchNorm> other(
            std::in_place, c, channels,
            BatchNormOptions{.name = "other", .epsilon = 2, .device = device});
        other->set_stream(stream.get());
        // The first pass of a layer looks at its sums at once, but does not tell at once.
        other->forward(x.view(), y.view());
      } else {
        (wrong ? b : a).forward(x.view(), y.view());
      }
      d.forward(x.view(), y.view());
      settle(on, stream);
    });
    for (const std::string& message : messages) {
      CHECK_THAT(message, Contains("batch norm: ranks differ: rank 1 at layer "));
      CHECK_THAT(message, Contains("ranks 0, 2 at layer a forward step 2"));
    }
    CHECK_THAT(messages[0],
               Contains(skips ? "layer b forward step 2" : "layer other forward step 1"));
  }
}

TEST_CASE("bn on a GPU: the message outlives the layer that it is of") {
  const auto messages = messages_of(setup_of(2), [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    const int device = on.gpu().ordinal();
    std::optional<SyncBatchNorm> a(std::in_place, c, channels,
                                   BatchNormOptions{.name = "a", .device = device});
    SyncBatchNorm b(c, channels, {.name = "b", .device = device});
    a->set_stream(stream.get());
    b.set_stream(stream.get());
    GpuTensor x(on, part(batch_of(2, 1), c.rank())), y(on, blank());
    a->forward(x.view(), y.view());
    b.forward(x.view(), y.view());
    a->forward(x.view(), y.view());
    if (c.rank() == 0) {
      a->backward(x.view(), y.view(), y.view());
    } else {
      b.backward(x.view(), y.view(), y.view());
    }
    a.reset();
    b.forward(x.view(), y.view());
  });
  for (const std::string& message : messages)
    CHECK_THAT(message, Contains("rank 0 at layer a backward step 2") &&
                            Contains("rank 1 at layer b backward step 1"));
}

TEST_CASE("bn on a GPU: a GPU on some ranks only") {
  const auto messages = messages_of(setup_of(2), [&](Communicator& c, OnGpu& on) {
    SyncBatchNorm layer(c, channels, {.device = c.rank() == 0 ? on.gpu().ordinal() : -1});
    if (c.rank() == 0) {
      GpuTensor x(on, part(batch_of(2, 1), 0)), y(on, blank());
      layer.forward(x.view(), y.view());
    } else {
      Tensor x = part(batch_of(2, 1), 1), y = blank();
      layer.forward(x.view(), y.view());
    }
  });
  for (const std::string& message : messages)
    CHECK_THAT(message, Contains("or is on a GPU of some ranks only"));
}

TEST_CASE("bn on a GPU: a rank that leaves, and a GPU that fails") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  for (const bool fails : {false, true}) {
    Setup setup = setup_of(2);
    setup.options.deadline = 2s;
    const auto messages = messages_of(setup, [&](Communicator& c, OnGpu& on) {
      const device::Stream stream(on.gpu());
      SyncBatchNorm layer(c, channels, {.device = on.gpu().ordinal()});
      layer.set_stream(stream.get());
      GpuTensor x(on, part(batch_of(2, 1), c.rank())), y(on, blank());
      layer.forward(x.view(), y.view());
      layer.forward(x.view(), y.view());
      settle(on, stream);
      if (c.rank() == 1) {
        if (!fails) return;
        fake.break_gpu(1);
      }
      for (int i = 0; i < 3; ++i) layer.forward(x.view(), y.view());
    });
    if (fails) CHECK_THAT(messages[1], Contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
    CHECK_THAT(messages[0], Contains("rank 1"));
    fake.clear();
    for (const int ordinal : {0, 1}) fake.break_gpu(ordinal, 0);
  }
}

TEST_CASE("bn on a GPU: what is refused") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(setup_of(1), "refused", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm layer(c, channels, {.name = "bn", .device = 0});
    SyncBatchNorm host(c, channels, {.name = "host"});
    layer.set_stream(stream.get());
    GpuTensor x(on, part(batch_of(1, 1), 0)), y(on, blank());
    Tensor on_host = blank();
    refused(Errc::invalid_argument, "layer bn: x is in host memory, but the layer is on GPU 0",
            [&] { layer.forward(on_host.view(), y.view()); });
    OnGpu other(1);
    GpuTensor elsewhere(other, blank());
    refused(Errc::invalid_argument, "y is in memory of GPU 1, but the layer is on GPU 0",
            [&] { layer.forward(x.view(), elsewhere.view()); });
    Activations longer = x.view();
    longer.samples *= 2;
    refused(Errc::invalid_argument, "x has 1.406 KiB, but its memory on GPU 0 ends after 721 B",
            [&] { layer.begin_forward(longer); });
    refused(Errc::invalid_argument,
            "gamma must be 6 f64, f32, f16 or bf16 in memory of GPU 0, not "
            "6 f32 in host memory",
            [&] { layer.bind_parameters(host.gamma(), host.beta()); });
    refused(Errc::invalid_argument, "in host memory, not 6 f32 of a GPU",
            [&] { host.bind_parameters(layer.gamma(), layer.beta()); });
    refused(Errc::unsupported, "it computes on the processor, where nothing is fused",
            [&] { host.forward(on_host.view(), on_host.view(), {.relu = true}); });
    layer.forward(x.view(), y.view(), {.relu = true});
    refused(Errc::invalid_argument, "backward of a ReLU needs the y",
            [&] { layer.backward(x.view(), y.view(), y.view(), {.relu = true}); });
    SyncBatchNorm* const both[] = {&layer, &host};
    const Activations xs[] = {x.view(), on_host.view()};
    refused(Errc::invalid_argument, "its GPU or stream is not that of layer bn",
            [&] { SyncBatchNorm::begin_forward(both, xs); });
    fake.capture(stream.get(), true);
    refused(Errc::unsupported, "the stream is being captured into a CUDA graph",
            [&] { layer.forward(x.view(), y.view()); });
    fake.capture(stream.get(), false);
    refused(Errc::invalid_argument, "there is no GPU 7",
            [&] { SyncBatchNorm(c, channels, {.device = 7}); });
    layer.forward(x.view(), y.view());
    settle(on, stream);
    expect(layer.mean().empty() && layer.gamma_gradient_sum().empty(), "spans of a layer on a GPU");
    for (const Parameter& parameter : layer.parameters())
      expect(parameter.device == 0, "a parameter is elsewhere");
  }));
}

TEST_CASE("bn on a GPU: a new stream in the middle of a pass is that of the next pass") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(setup_of(1), "next stream", [&](Communicator& c, OnGpu& on) {
    const device::Stream first(on.gpu()), second(on.gpu());
    SyncBatchNorm layer(c, channels, {.device = on.gpu().ordinal()});
    layer.set_stream(first.get());
    const Batch batch = batch_of(1, 1);
    GpuTensor x(on, part(batch, 0)), y(on, blank());
    layer.forward(x.view(), y.view());
    settle(on, first);
    y.set(blank());
    layer.begin_forward(x.view());
    layer.set_stream(second.get());
    fake.hold(second.get());
    layer.end_forward(y.view());
    settle(on, first);
    expect_part(y, reference_of(batch, batch).y, 0, "y");
    fake.let_go(second.get());
    layer.backward(x.view(), y.view(), y.view());
    settle(on, second);
  }));
}

TEST_CASE("bn on a GPU: a number of batches that is set stays, after a step without samples") {
  CHECK_NOTHROW(run_on_gpus(setup_of(1), "batches", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm layer(c, channels, {.momentum = std::nullopt, .device = on.gpu().ordinal()});
    layer.set_stream(stream.get());
    GpuTensor x(on, part(batch_of(1, 1), 0)), y(on, blank());
    for (int step = 0; step < 2; ++step) layer.forward(x.view(), y.view());
    layer.forward({}, {});
    layer.set_batches(0);
    layer.forward(x.view(), y.view());
    settle(on, stream);
    expect(layer.batches() == 1, "the batches are not those that were set, and one more");
    for (const double mean : numbers_on(on, layer.running_mean()))
      expect(std::isfinite(mean), "a running mean is not finite");
  }));
}

TEST_CASE("bn on a GPU: outputs of a fused pass that overlap are refused") {
  CHECK_NOTHROW(run_on_gpus(setup_of(1), "overlaps", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm layer(c, channels, {.device = on.gpu().ordinal()});
    layer.set_stream(stream.get());
    GpuTensor x(on, part(batch_of(1, 1), 0)), y(on, blank()), dy(on, blank()), dx(on, blank());
    const device::DeviceMemory twice(on.gpu(), 2 * blank().bytes().size());
    Activations one = x.view(), shifted = x.view();
    one.data = reinterpret_cast<void*>(twice.address());
    shifted.data = reinterpret_cast<void*>(twice.address() + 4);
    refused(Errc::invalid_argument, "z and y overlap in part",
            [&] { layer.forward(x.view(), one, {.add = shifted}); });
    refused(Errc::invalid_argument, "z and y overlap in part",
            [&] { layer.evaluate(x.view(), one, {.add = shifted}); });
    layer.forward(x.view(), y.view(), {.relu = true});
    refused(Errc::invalid_argument, "dz and dx overlap", [&] {
      layer.backward(x.view(), dy.view(), dx.view(),
                     {.relu = true, .add = dx.view(), .y = y.view()});
    });
    refused(Errc::invalid_argument, "dz overlaps the input in part", [&] {
      layer.backward(x.view(), one, dx.view(), {.relu = true, .add = shifted, .y = y.view()});
    });
    refused(Errc::invalid_argument, "dx overlaps y in part",
            [&] { layer.backward(x.view(), dy.view(), one, {.relu = true, .y = shifted}); });
    layer.backward(x.view(), dy.view(), dx.view(), {.relu = true, .y = y.view()});
    settle(on, stream);
  }));
}

// A backward pass without the ReLU of its forward pass, or with one that was not there, would give
// wrong gradients.
TEST_CASE("a ReLU in only one of forward and backward is refused on a GPU") {
  const bool forward = GENERATE(false, true);
  CHECK_NOTHROW(run_on_gpus(setup_of(2), "relu", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm layer(c, channels, {.name = "bn", .device = on.gpu().ordinal()});
    SyncBatchNorm* const list[] = {&layer};
    layer.set_stream(stream.get());
    GpuTensor x(on, part(batch_of(2, 1), c.rank())), y(on, blank()), dy(on, blank()),
        dx(on, blank());
    const BatchNormFusion relu{.relu = true, .y = y.view()};
    const BatchNormFusion there = forward ? relu : BatchNormFusion{},
                          back = forward ? BatchNormFusion{} : relu;
    const Activations xs[] = {x.view()}, dys[] = {dy.view()};
    const BatchNormGradients into{layer.gamma_gradient(), layer.beta_gradient(), true};
    const auto wrong = [&](const std::string& pass, const std::function<void()>& call) {
      refused(Errc::invalid_argument,
              "rank " + std::to_string(c.rank()) + ": batch norm layer bn: backward " +
                  (forward ? "is without" : "has") + " a ReLU, but " + pass + " was " +
                  (forward ? "with" : "without") + " one: give both the same BatchNormFusion::relu",
              call);
    };
    layer.forward(x.view(), y.view(), there);
    wrong("the last forward pass", [&] { layer.backward(x.view(), dy.view(), dx.view(), back); });
    if (forward)
      wrong("the last forward pass", [&] { SyncBatchNorm::begin_backward(list, xs, dys); });
    // Nothing has begun, so the right one goes on.
    layer.backward(x.view(), dy.view(), dx.view(), there);
    layer.forward(x.view(), y.view(), there);
    const BatchNormPass taken = layer.take_pass();
    wrong("the forward pass of step 2",
          [&] { layer.backward(taken, x.view(), dy.view(), dx.view(), into, back); });
    layer.backward(taken, x.view(), dy.view(), dx.view(), into, there);
    const BatchNormPass evaluated = layer.evaluate_pass(x.view(), y.view(), there);
    wrong("the evaluation",
          [&] { layer.backward(evaluated, x.view(), dy.view(), dx.view(), into, back); });
    layer.backward(evaluated, x.view(), dy.view(), dx.view(), into, there);
    settle(on, stream);
  }));
}

}  // namespace
}  // namespace rondo::testing

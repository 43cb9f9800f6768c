// SPDX-License-Identifier: Apache-2.0
//
// Counts that calls on memory of GPUs allocate nothing either. The driver is the fake one, whose
// own allocations are left out.
#include <vector>

#include <rondo/batch_norm.h>

#include "catch.h"
#include "grad/gpu.h"
#include "hot_path/attempts.h"
#include "hot_path/counting.h"

namespace rondo::testing {
namespace {

void leave_out_the_driver() {
  have_kernels();
  leave_out_allocations(FakeCuda().inside());
}

// Every collective that has a schedule, small and in several segments or chunks, and a message to
// the next rank.
class Calls {
 public:
  static constexpr std::size_t most = 100'000;

  Calls(Communicator& c, OnGpu& on)
      : c_(c),
        on_(on),
        stream_(on.gpu()),
        in_(c.allocate(most * sizeof(float), on.gpu().ordinal())),
        out_(c.allocate(most * sizeof(float), on.gpu().ordinal())) {}

  void run() {
    for (const std::size_t count : {std::size_t{16}, most / 4}) {
      const auto n = static_cast<std::size_t>(c_.size());
      const Buffer in = buffer(in_, count), out = buffer(out_, count);
      const Buffer wide_in = buffer(in_, count * n), wide_out = buffer(out_, count * n);
      const OpOptions options{.stream = stream_.get()};
      const OpOptions scaled{.stream = stream_.get(), .input_scale = 0.5};
      Work works[] = {c_.all_reduce(in, out, ReduceOp::sum, options),
                      c_.all_reduce(in, out, ReduceOp::sum, scaled),
                      c_.reduce(in, out, ReduceOp::max, 1, options),
                      c_.broadcast(in, out, 1, options),
                      c_.all_gather(in, wide_out, options),
                      c_.reduce_scatter(wide_in, out, ReduceOp::sum, options),
                      c_.gather(in, wide_out, 1, options),
                      c_.scatter(wide_in, out, 1, options),
                      c_.all_to_all(wide_in, wide_out, options)};
      works[0].join(stream_.get());
      for (Work& work : works) work.wait();
      exchange(in, out, options);
    }
  }

 private:
  Buffer buffer(const Memory& memory, std::size_t count) const noexcept {
    return {memory.data(), count, DType::f32, on_.gpu().ordinal()};
  }
  void exchange(const Buffer& in, const Buffer& out, const OpOptions& options) {
    const int next = (c_.rank() + 1) % c_.size(),
              previous = (c_.rank() + c_.size() - 1) % c_.size();
    Work receiving = c_.receive(out, previous, 7, options);
    c_.send(in, next, 7, options).wait();
    receiving.wait();
  }

  Communicator& c_;
  OnGpu& on_;
  device::Stream stream_;
  Memory in_, out_;
};

}  // namespace

TEST_CASE("nothing is allocated for calls on memory of a GPU", "[gpu]") {
  if (FakeCuda::missing()) return;
  leave_out_the_driver();
  std::vector<Setup> ways = every_way();
  ways.push_back(ways[2]);  // over shm
  ways.back().options.algorithm = "two_level";
  ways.back().hosts = {0, 0, 1};
  const std::size_t way = GENERATE(0, 1, 2, 3, 4);
  Setup setup = ways[way];
  setup.size = 3;
  Attempts attempts(setup.size);
  run_on_gpus(setup, "hot path", [&](Communicator& c, OnGpu& on) {
    Calls calls(c, on);
    // Direct algorithms go through the host until the ranks have mapped each other's memory.
    for (int i = 0; i < 20; ++i) calls.run();
    attempts.run(c.rank(), 10, [&] { calls.run(); });
  });
  INFO(name_of(setup.over) << " " << setup.options.algorithm);
  CHECK(attempts.least() == 0);
}

TEST_CASE("nothing is allocated after the second step of gradient buckets on a GPU", "[gpu]") {
  if (FakeCuda::missing()) return;
  leave_out_the_driver();
  const bool everything = GENERATE(false, true);
  Setup setup;
  Attempts attempts(setup.size);
  run_on_gpus(setup, "gradients", [&](Communicator& c, OnGpu& on) {
    constexpr Tensor shapes[] = {{5000}, {3000, DType::f64}, {100, DType::bf16}, {20'000}};
    GradientOptions options;
    options.first_bucket_bytes = 4096;
    options.bucket_bytes = 20'000;
    if (everything) {
      options.wire = DType::bf16;
      options.find_unused = true;
    }
    GradientBuckets buckets(c, parameters_of(shapes, on.gpu().ordinal()), options);
    const device::Stream stream(on.gpu());
    const device::DeviceMemory given(on.gpu(), shapes[0].count * sizeof(float));
    const auto step = [&] {
      buckets.begin_step({.stream = stream.get()});
      buckets.zero(OnStream{stream.get()});
      buckets.ready(0, reinterpret_cast<const void*>(given.address()), OnStream{stream.get()});
      for (std::size_t i = 1; i < buckets.parameter_count(); ++i)
        if (!everything || i != 2) buckets.ready(i, OnStream{stream.get()});
      buckets.finish(OnStream{stream.get()});
    };
    for (int i = 0; i < 5; ++i) step();

    attempts.run(c.rank(), 20, step);
    settle(on, stream);
  });
  INFO((everything ? "everything" : "plain"));
  CHECK(attempts.least() == 0);
}

TEST_CASE("batch norm on a GPU allocates nothing from its third step on", "[gpu]") {
  if (FakeCuda::missing()) return;
  leave_out_the_driver();
  const TensorLayout layout = GENERATE(TensorLayout::nchw, TensorLayout::nhwc);
  constexpr std::size_t samples = 4, channels = 24, spatial = 500,
                        elements = samples * channels * spatial;
  Setup setup;
  Attempts attempts(setup.size);
  run_on_gpus(setup, "batch norm", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm layer(c, channels,
                        {.name = "bn", .layout = layout, .device = on.gpu().ordinal()});
    layer.set_stream(stream.get());
    const GpuFloats in(on, elements, 0.5F), out(on, elements, 0);
    const Activations x{in.buffer().data, samples, spatial}, y{out.buffer().data, samples, spatial};
    const auto step = [&] {
      const BatchNormPass first = layer.forward(x, y), second = layer.forward(x, y);
      layer.backward(second, x, x, y, {});
      layer.backward(first, x, x, y, {});
      layer.evaluate(x, y);
    };
    for (int i = 0; i < 3; ++i) step();

    attempts.run(c.rank(), 20, step);
    settle(on, stream);
  });
  CHECK(attempts.least() == 0);
}

}  // namespace rondo::testing

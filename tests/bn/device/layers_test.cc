// SPDX-License-Identifier: Apache-2.0
//
// Layers on GPUs of the fake driver, which runs the kernels on the processor: ranks together must
// reach what one process gets with the whole batch.
#include "bn/device/gpu_tensors.h"
#include "catch.h"

namespace rondo::testing {
namespace {

using Catch::Matchers::Contains;

void check_steps(Over over, int size, DType type, TensorLayout layout, std::size_t spatial) {
  const FakeCuda fake;
  register_device_kernels(fake);
  Setup setup;
  setup.size = size;
  setup.over = over;
  const std::size_t channels = 5, each = 4;
  const bool in_f64 = type == DType::f64;
  const double tolerance = in_f64               ? 1e-12
                           : type == DType::f32 ? 1e-5
                           : type == DType::f16 ? 2e-3
                                                : 2e-2;
  run_on_gpus(setup, "steps", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm layer(
        c, channels, {.name = "bn", .type = type, .layout = layout, .device = on.gpu().ordinal()});
    layer.set_stream(stream.get());
    const auto rank = static_cast<std::size_t>(c.rank());
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const std::size_t samples = each * static_cast<std::size_t>(size);
      const Batch x = stored(draw_batch(samples, channels, spatial, step), type);
      const Batch dy = stored(draw_batch(samples, channels, spatial, 100 + step), type);
      const Reference wanted(x, dy, Numbers(channels, 1), Numbers(channels, 0), 1e-5);
      GpuTensor on_x(on, Tensor(type, layout, x, rank * each, each));
      GpuTensor on_y(on, Tensor(type, layout, each, channels, spatial));
      GpuTensor on_dy(on, Tensor(type, layout, dy, rank * each, each));
      GpuTensor on_dx(on, Tensor(type, layout, each, channels, spatial));
      layer.forward(on_x.view(), on_y.view());
      layer.backward(on_x.view(), on_dy.view(), on_dx.view());
      settle(on, stream);
      Batch y = x, dx = x;
      // Other ranks' parts are taken from the reference.
      y.values = wanted.y;
      dx.values = wanted.dx;
      on_y.read().unpack(y, rank * each);
      on_dx.read().unpack(dx, rank * each);
      expect_near_by_channel(y, wanted.y, tolerance, "y");
      expect_near_by_channel(dx, wanted.dx, tolerance, "dx");
      expect_near(numbers_on(on, layer.mean_buffer()), wanted.mean, in_f64 ? 1e-13 : 1e-6, "mean");
      expect_near(numbers_on(on, layer.variance_buffer()), wanted.variance, in_f64 ? 1e-13 : 1e-6,
                  "variance");
    }
  });
}

TEST_CASE("bn on a GPU: all types and layouts") {
  for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const TensorLayout layout : {TensorLayout::nchw, TensorLayout::nhwc})
      for (const std::size_t spatial : {1, 7, 48}) {
        INFO(name_of(type) << ", " << spatial << " positions");
        CHECK_NOTHROW(check_steps(Over::mem, 2, type, layout, spatial));
      }
}

TEST_CASE("bn on a GPU: steps over transports") {
  for (const Over over : {Over::mem, Over::tcp, Over::shm})
    for (const int size : {1, 3})
      CHECK_NOTHROW(check_steps(over, size, DType::f32, TensorLayout::nchw, 9));
}

}  // namespace
}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
//
// Layers on GPUs of the fake driver, which runs the kernels on the processor. Ranks together must
// reach what one process gets with the whole batch, and what layers on the processor get.
#include "bn/device/gpu_tensors.h"
#include "catch.h"

namespace rondo::testing {
namespace {

double tolerance_of(DType type) {
  return type == DType::f64 ? 1e-12 : type == DType::f32 ? 1e-5 : type == DType::f16 ? 2e-3 : 2e-2;
}

// Samples first to first + count of a batch.
struct Share {
  std::size_t first, count;
};

// A layer on a GPU and one on the processor with the same options, on one rank.
class Both {
 public:
  Both(Communicator& c, OnGpu& on, std::size_t channels, BatchNormOptions options)
      : on_(on),
        stream_(on.gpu()),
        options_(options),
        host(c, channels, named(options, "host")),
        gpu(c, channels, placed(named(options, "gpu"), on.gpu().ordinal())) {
    gpu.set_stream(stream_.get());
  }

  void forward(const Batch& x, Share share) {
    x_.emplace(tensor(x, share));
    y_.emplace(empty(x, share));
    on_x_.emplace(on_, tensor(x, share));
    on_y_.emplace(on_, empty(x, share));
    host.forward(x_->view(), y_->view());
    gpu.forward(on_x_->view(), on_y_->view());
    finish();
    same(*y_, on_y_->read(), x, share, "y");
  }
  void backward(const Batch& dy, Share share) {
    Tensor host_dy = tensor(dy, share), dx = empty(dy, share);
    GpuTensor on_dy(on_, tensor(dy, share)), on_dx(on_, empty(dy, share));
    host.backward(x_->view(), host_dy.view(), dx.view());
    gpu.backward(on_x_->view(), on_dy.view(), on_dx.view());
    finish();
    same(dx, on_dx.read(), dy, share, "dx");
  }
  void evaluate(const Batch& x, Share share) {
    Tensor host_x = tensor(x, share), y = empty(x, share);
    GpuTensor on_x(on_, tensor(x, share)), on_y(on_, empty(x, share));
    host.evaluate(host_x.view(), y.view());
    gpu.evaluate(on_x.view(), on_y.view());
    finish();
    same(y, on_y.read(), x, share, "evaluated y");
  }
  void check_numbers() {
    const double tolerance = options_.type == DType::f64   ? 1e-12
                             : options_.type == DType::f32 ? 1e-6
                                                           : 1e-5;
    const auto check = [&](const Buffer& on_host, const Buffer& on_gpu, const std::string& what) {
      expect(on_gpu.device == on_.gpu().ordinal(), what + " is elsewhere");
      expect_near(numbers_on(on_, on_gpu), numbers(on_host), tolerance, what);
    };
    check(host.mean_buffer(), gpu.mean_buffer(), "mean");
    check(host.variance_buffer(), gpu.variance_buffer(), "variance");
    check(host.point(), gpu.point(), "point");
    check(host.running_mean(), gpu.running_mean(), "running mean");
    check(host.running_variance(), gpu.running_variance(), "running variance");
    if (options_.affine) {
      check(host.gamma_gradient(), gpu.gamma_gradient(), "gamma's gradient");
      check(host.gamma_gradient_sum_buffer(), gpu.gamma_gradient_sum_buffer(), "gamma's sum");
    }
    if (options_.affine && options_.bias) {
      check(host.beta_gradient(), gpu.beta_gradient(), "beta's gradient");
      check(host.beta_gradient_sum_buffer(), gpu.beta_gradient_sum_buffer(), "beta's sum");
    }
  }
  void set_parameters(const Numbers& gamma, const Numbers& beta) {
    assign(host.gamma(), gamma);
    assign_on(on_, gpu.gamma(), gamma);
    if (!options_.bias) return;
    assign(host.beta(), beta);
    assign_on(on_, gpu.beta(), beta);
  }
  void finish() { settle(on_, stream_); }
  const device::Stream& stream() const noexcept { return stream_; }

 private:
  static BatchNormOptions named(BatchNormOptions options, const char* name) {
    options.name = name;
    return options;
  }
  static BatchNormOptions placed(BatchNormOptions options, int device) {
    options.device = device;
    return options;
  }
  Tensor tensor(const Batch& of, Share share) const {
    return Tensor(options_.type, options_.layout, of, share.first, share.count);
  }
  Tensor empty(const Batch& like, Share share) const {
    return Tensor(options_.type, options_.layout, share.count, like.channels, like.spatial);
  }
  void same(const Tensor& wanted, const Tensor& got, const Batch& like, Share share,
            const std::string& what) const {
    Batch a{share.count, like.channels, like.spatial,
            Numbers(share.count * like.channels * like.spatial)},
        b = a;
    wanted.unpack(a, 0);
    got.unpack(b, 0);
    expect_near_by_channel(b, a.values, tolerance_of(options_.type), what);
  }

  OnGpu& on_;
  device::Stream stream_;
  BatchNormOptions options_;
  std::optional<Tensor> x_, y_;
  std::optional<GpuTensor> on_x_, on_y_;

 public:
  SyncBatchNorm host, gpu;
};

Share share_of(int rank, std::initializer_list<std::size_t> counts) {
  Share share{0, 0};
  for (const std::size_t count : counts) {
    share.first += share.count;
    share.count = count;
    if (rank-- == 0) break;
  }
  return share;
}

// Against one process with the whole batch.
void check_steps(Over over, int size, DType type, TensorLayout layout, std::size_t spatial) {
  const std::size_t channels = 5, each = 4;
  const bool in_f64 = type == DType::f64;
  const double tolerance = tolerance_of(type);
  run_on_gpus(setup_of(size, over), "steps", [&](Communicator& c, OnGpu& on) {
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

TEST_CASE("bn on a GPU: as on the processor, with uneven shares, parameters and averages") {
  for (const DType type : {DType::f64, DType::f32, DType::bf16})
    for (int choice = 0; choice < 4; ++choice)
      CHECK_NOTHROW(run_on_gpus(setup_of(3), "both", [&](Communicator& c, OnGpu& on) {
        const std::size_t channels = 21;
        BatchNormOptions options;
        options.type = type;
        options.layout = choice % 2 == 0 ? TensorLayout::nhwc : TensorLayout::nchw;
        options.affine = choice != 1;
        options.bias = choice != 2;
        if (choice == 3) options.momentum = std::nullopt;
        Both both(c, on, channels, options);
        if (options.affine) both.set_parameters(Numbers(channels, -1.5), Numbers(channels, 0.25));
        for (std::uint64_t step = 1; step <= 4; ++step) {
          // In the third step nobody has a sample.
          const std::initializer_list<std::size_t> counts[] = {
              {5, 0, 3}, {1, 6, 2}, {0, 0, 0}, {0, 0, 4}};
          const Share share = share_of(c.rank(), counts[step - 1]);
          const Batch x = stored(draw_batch(9, channels, 3, step), type);
          both.forward(x, share);
          both.backward(stored(draw_batch(9, channels, 3, 50 + step), type), share);
          both.check_numbers();
          both.evaluate(x, share);
        }
        // The GPU's count of the third step was taken back when its sums were looked at.
        both.forward(draw_batch(9, channels, 3, 1), share_of(c.rank(), {3, 3, 3}));
        expect(both.gpu.batches() == both.host.batches() && both.gpu.batches() == 4, "batches");
      }));
}

TEST_CASE("bn on a GPU: hard numbers, and a mean that jumps") {
  for (const DType type : {DType::f64, DType::f32})
    CHECK_NOTHROW(run_on_gpus(setup_of(2), "hard", [&](Communicator& c, OnGpu& on) {
      const std::size_t channels = 3;
      Both both(c, on, channels, {.type = type});
      const auto batch_of = [&](std::uint64_t seed, double mean) {
        Batch batch{6, channels, 50, {}};
        const double deviations[] = {1e-3, 1, 1e-4};
        for (std::size_t i = 0; i < batch.size(); ++i)
          batch.values.push_back(mean + deviations[i / 50 % channels] * normal(seed, i));
        return stored(batch, type);
      };
      const Share share = share_of(c.rank(), {2, 4});
      // Moves by less than 60 deviations, the most that f64 bears without looking.
      for (const double mean : {1e4, 1e4 + 0.005, 1e4, 1e4 - 0.002}) {
        both.forward(batch_of(static_cast<std::uint64_t>(mean * 1000), mean), share);
        both.backward(draw_batch(6, channels, 50, 9), share);
        both.check_numbers();
      }
      // Far away, the sums of a step may lose digits; f32 keeps all of its own. The next step
      // knows.
      const Batch jumped = batch_of(77, 1e4 + 10);
      if (type == DType::f32) {
        both.forward(jumped, share);
        both.check_numbers();
      } else {
        GpuTensor x(on, Tensor(type, TensorLayout::nchw, jumped, share.first, share.count));
        GpuTensor y(on, Tensor(type, TensorLayout::nchw, share.count, channels, 50));
        both.gpu.forward(x.view(), y.view());
      }
      for (const double mean : {2e4, 1e4}) {  // each looks, because the one before was far
        const Batch next = batch_of(78, mean);
        GpuTensor x(on, Tensor(type, TensorLayout::nchw, next, share.first, share.count));
        GpuTensor y(on, Tensor(type, TensorLayout::nchw, share.count, channels, 50));
        both.gpu.forward(x.view(), y.view());
        both.finish();
        const Reference wanted(next, next, Numbers(channels, 1), Numbers(channels, 0), 1e-5);
        const Numbers variance = numbers_on(on, both.gpu.variance_buffer());
        for (std::size_t i = 0; i < channels; ++i)
          expect(std::abs(variance[i] - wanted.variance[i]) <= 1e-12 * wanted.variance[i], [&] {
            return fmt::format("variance {} instead of {}", variance[i], wanted.variance[i]);
          });
      }
    }));
}

TEST_CASE("bn on a GPU: no function that may block, and nothing waits for a kernel") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(setup_of(2), "steady", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    SyncBatchNorm first(c, 8, {.name = "1", .device = on.gpu().ordinal()});
    SyncBatchNorm second(c, 8, {.name = "2", .device = on.gpu().ordinal()});
    const Batch batch = draw_batch(4, 8, 9, 1);
    const auto rank = static_cast<std::size_t>(c.rank());
    GpuTensor x(on, Tensor(DType::f32, TensorLayout::nchw, batch, rank * 2, 2));
    GpuTensor y(on, Tensor(DType::f32, TensorLayout::nchw, 2, 8, 9));
    GpuTensor z(on, Tensor(DType::f32, TensorLayout::nchw, 2, 8, 9));
    GpuTensor dx(on, Tensor(DType::f32, TensorLayout::nchw, 2, 8, 9));
    first.set_stream(stream.get());
    second.set_stream(stream.get());
    const auto step = [&] {
      first.forward(x.view(), y.view());
      second.forward(y.view(), z.view());
      second.backward(y.view(), x.view(), dx.view());
      first.backward(x.view(), dx.view(), dx.view());
    };
    step();
    step();
    fake.forbid_blocking(true);
    for (int i = 0; i < 3; ++i) step();
    fake.forbid_blocking(false);
    settle(on, stream);
  }));
}

}  // namespace
}  // namespace rondo::testing

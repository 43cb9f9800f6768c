// SPDX-License-Identifier: Apache-2.0
//
// Gradients on a GPU have the bits of the same gradients in host memory, in every form: views and
// copies, types, wire types, unused parameters, ranks without data, local steps.
#include <cmath>
#include <cstring>
#include <limits>

#include "catch.h"
#include "gpu/gradients.h"
#include "support/draw.h"

namespace rondo::testing {
namespace {

constexpr Shape mixed_shapes[] = {
    {300, DType::f32},  {17, DType::f64},  {129, DType::f16}, {0, DType::f32},  {1, DType::bf16},
    {1000, DType::f32}, {64, DType::bf16}, {5, DType::f64},   {33, DType::f32}, {250, DType::f16}};

// Finite values of moderate size: the two highest bits of each exponent differ.
Bytes draw_gradient(const Shape& shape, Draw& draw) {
  Bytes bytes(shape.count * size_of(shape.type));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(draw(256));
  for (std::size_t i = size_of(shape.type) - 1; i < bytes.size(); i += size_of(shape.type))
    bytes[i] = (bytes[i] & std::byte{0x83}) | std::byte{0x3c};
  return bytes;
}

// How the program gives its gradients.
enum class Way { views, copies, both };

// What a rank does in a step.
struct Plan {
  double weight = 1;
  bool local = false;
  bool zero = false;
  std::vector<std::size_t> unused{};
  double clip = -1;  // the largest norm
  int growth = 0;    // gradients of f32 are multiplied by 2 to the power of this
};

void grow(const Shape& shape, Bytes& gradient, int growth) {
  if (shape.type != DType::f32 || growth == 0) return;
  for (std::size_t i = 0; i < gradient.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, gradient.data() + i, sizeof value);
    value = std::ldexp(value, growth);
    std::memcpy(gradient.data() + i, &value, sizeof value);
  }
}

// Buckets in host memory and on a GPU, which make the same steps.
class Twins {
 public:
  Twins(Communicator& c, OnGpu& on, std::span<const Shape> shapes, const GradientOptions& options,
        Way way)
      : on_(on),
        shapes_(shapes.begin(), shapes.end()),
        way_(way),
        norms_(options.norms),
        stream_(on.gpu()),
        other_(on.gpu()),
        host(c, parameters_of(shapes, -1), options),
        gpu(c, parameters_of(shapes, on.gpu().ordinal()), options) {
    for (const Shape& shape : shapes_) {
      const std::size_t bytes = shape.count * size_of(shape.type);
      pinned_.emplace_back(std::make_unique<PinnedBytes>(on, bytes));
      sources_.emplace_back(std::make_unique<device::DeviceMemory>(on.gpu(), bytes + 8));
    }
  }

  void step(const Plan& plan, std::uint64_t seed, bool on_stream) {
    std::vector<Bytes> gradients;
    Draw draw(seed);
    for (const Shape& shape : shapes_) {
      gradients.push_back(draw_gradient(shape, draw));
      grow(shape, gradients.back(), plan.growth);
    }
    host_step(plan, gradients);
    gpu_step(plan, gradients, on_stream);
    if (plan.clip >= 0) {
      std::vector<double> other{0.5, 0.25};
      host.count_in_norm(buffer_of(std::span(other)));
      gpu.count_in_norm(buffer_of(std::span(other)));
      host.clip(plan.clip);
      gpu.clip_on(plan.clip, stream_.get());
      settle(on_, stream_);
    }
    expect_same(seed);
  }

  void expect_same(std::uint64_t seed) {
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      const Buffer wanted = host.gradient(i), got = gpu.gradient(i);
      const std::size_t bytes = wanted.count * size_of(wanted.type);
      expect(got.device == on_.gpu().ordinal(), "a gradient is elsewhere");
      Bytes read(bytes);
      on_.copier.read(read, address_of(got));
      expect(bytes == 0 || std::memcmp(read.data(), wanted.data, bytes) == 0, [&] {
        return "p" + std::to_string(i) + " has other bits on the GPU, seed " + std::to_string(seed);
      });
      if (!norms_) continue;
      expect(host.norm(i) == gpu.norm(i), [&] {
        return "p" + std::to_string(i) + " has another norm on the GPU, seed " +
               std::to_string(seed);
      });
    }
    if (norms_)
      expect(host.norm() == gpu.norm() && host.finite() && gpu.finite() &&
                 host.clip_factor(0.1) == gpu.clip_factor(0.1),
             "another norm of all");
  }

 private:
  bool copies(std::size_t i) const { return way_ == Way::copies || (way_ == Way::both && i % 2); }
  static bool is_unused(const Plan& plan, std::size_t i) {
    return std::ranges::find(plan.unused, i) != plan.unused.end();
  }

  void host_step(const Plan& plan, const std::vector<Bytes>& gradients) {
    std::optional<GradientBuckets::Accumulation> local;
    if (plan.local) local.emplace(host);
    if (plan.zero) host.zero();
    host.begin_step({.weight = plan.weight, .unused = plan.unused});
    for (std::size_t i = shapes_.size(); i-- > 0;) {
      if (is_unused(plan, i)) continue;
      if (copies(i)) {
        host.ready(i, gradients[i].data());
        continue;
      }
      if (!gradients[i].empty())
        std::memcpy(host.gradient(i).data, gradients[i].data(), gradients[i].size());
      host.ready(i);
    }
    host.finish();
  }

  // The host waits for nothing before the end. Every second gradient is made on another stream.
  void gpu_step(const Plan& plan, const std::vector<Bytes>& gradients, bool on_stream) {
    std::optional<GradientBuckets::Accumulation> local;
    if (plan.local) local.emplace(gpu);
    if (plan.zero) gpu.zero_on(stream_.get());
    gpu.begin_step({.weight = plan.weight, .unused = plan.unused, .stream = stream_.get()});
    chain(on_, stream_, other_);
    for (std::size_t i = shapes_.size(); i-- > 0;) {
      if (is_unused(plan, i)) continue;
      const device::Stream& stream = i % 2 == 0 ? stream_ : other_;
      const bool copy = copies(i);
      const device::Address to = copy ? sources_[i]->address() : address_of(gpu.gradient(i));
      if (!gradients[i].empty()) {
        std::memcpy(pinned_[i]->data(), gradients[i].data(), gradients[i].size());
        pinned_[i]->to_gpu(to, gradients[i].size(), stream);
      }
      if (copy)
        gpu.ready_on(i, stream.get(), reinterpret_cast<const void*>(to));
      else
        gpu.ready_on(i, stream.get());
    }
    if (on_stream)
      gpu.finish_on(stream_.get());
    else
      gpu.finish();
    settle(on_, stream_);
    settle(on_, other_);
  }

  OnGpu& on_;
  const std::vector<Shape> shapes_;
  const Way way_;
  const bool norms_;
  device::Stream stream_, other_;
  std::vector<std::unique_ptr<PinnedBytes>> pinned_;
  std::vector<std::unique_ptr<device::DeviceMemory>> sources_;

 public:
  GradientBuckets host, gpu;
};

Setup gradient_setup(int size) {
  have_kernels();
  Setup setup;
  setup.size = size;
  // Direct algorithms on host memory round short floats once.
  setup.options.reproducible = true;
  return setup;
}

GradientOptions small_buckets() {
  GradientOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 640;
  options.norms = true;
  return options;
}

TEST_CASE("gradients on a GPU have the bits of those in host memory", "[gradients]") {
  const Way way = GENERATE(Way::views, Way::copies, Way::both);
  const Averaging averaging = GENERATE(Averaging::mean, Averaging::sum, Averaging::weighted);
  CHECK_NOTHROW(run_on_gpus(gradient_setup(3), "bits", [&](Communicator& c, OnGpu& on) {
    for (const int wire : {0, 1, 2, 3, 4}) {
      GradientOptions options = small_buckets();
      options.averaging = averaging;
      if (wire != 0) options.wire = wire > 2 ? DType::f16 : DType::bf16;
      options.error_feedback = wire == 2 || wire == 4;
      Twins twins(c, on, mixed_shapes, options, way);
      const double weight = averaging == Averaging::weighted ? 1.0 + c.rank() : 1.0;
      for (std::uint64_t step = 0; step < 4; ++step)
        twins.step({.weight = weight, .clip = step == 2 ? 1.5 : -1},
                   100 * step + static_cast<std::uint64_t>(c.rank()), step % 2 == 0);
    }
  }));
}

TEST_CASE("unused gradients on a GPU, ranks without data and local steps", "[gradients]") {
  const Way way = GENERATE(Way::views, Way::both);
  const bool find = GENERATE(false, true);
  const std::optional<DType> wire =
      GENERATE(as<std::optional<DType>>(), std::nullopt, DType::bf16, DType::f16);
  CHECK_NOTHROW(run_on_gpus(gradient_setup(3), "unused", [&](Communicator& c, OnGpu& on) {
    GradientOptions options = small_buckets();
    options.find_unused = find;
    options.wire = wire;
    options.error_feedback = wire.has_value();
    Twins twins(c, on, mixed_shapes, options, way);
    Draw draw(static_cast<std::uint64_t>(c.rank()) + (find ? 10 : 20)), same(7);
    for (std::uint64_t step = 0; step < 12; ++step) {
      Plan plan{.weight = draw(4) == 0 ? 0.0 : 1.0, .local = same(3) == 0, .zero = same(3) == 0};
      const bool unused = same(4) != 0;
      for (std::size_t i = 0; unused && i < std::size(mixed_shapes); ++i) {
        // Some are unused on all ranks: those stay as they are.
        const bool everywhere = same(4) == 0;
        if (everywhere || draw(3) == 0) plan.unused.push_back(i);
      }
      twins.step(plan, 1000 * step + static_cast<std::uint64_t>(c.rank()), draw(2) == 0);
    }
  }));
}

// Sums of f16 overflow, and travel again: in buckets that share parameters, blocks of squares or
// both.
TEST_CASE("f16 on the wire of a GPU has the bits of host memory when gradients grow",
          "[gradients]") {
  constexpr Shape shapes[] = {{9000}, {100, DType::f64}, {300}, {1}, {5000}, {33}};
  const bool feedback = GENERATE(false, true);
  const std::size_t cap = GENERATE(1024, 20'032, std::size_t{1} << 20);
  const Way way = GENERATE(Way::views, Way::copies);
  const int size = GENERATE(1, 2);
  CHECK_NOTHROW(run_on_gpus(gradient_setup(size), "grown", [&](Communicator& c, OnGpu& on) {
    GradientOptions options;
    options.first_bucket_bytes = 512;
    options.bucket_bytes = cap;
    options.norms = true;
    options.wire = DType::f16;
    options.error_feedback = feedback;
    if (cap > 20'000) options.on_bucket = [](const CompletedBucket&) {};
    Twins twins(c, on, shapes, options, way);
    std::uint64_t step = 0;
    for (const int growth : {0, 12, 3, 30, -40, -12, 0, 10}) {
      ++step;
      twins.step({.growth = growth}, 10 * step + static_cast<std::uint64_t>(c.rank()),
                 step % 2 == 0);
    }
  }));
}

TEST_CASE("an infinite gradient on a GPU is found on all ranks, and clip() leaves it",
          "[gradients]") {
  constexpr Shape shapes[] = {{300}, {5000}, {40, DType::bf16}};
  const bool f16 = GENERATE(false, true);
  CHECK_NOTHROW(run_on_gpus(gradient_setup(3), "infinite", [&](Communicator& c, OnGpu& on) {
    GradientOptions options = small_buckets();
    if (f16) options.wire = DType::f16;
    GradientBuckets buckets(c, parameters_of(shapes, on.gpu().ordinal()), options);
    const device::Stream stream(on.gpu());
    for (int step = 0; step < 4; ++step) {
      buckets.begin_step({.stream = stream.get()});
      for (std::size_t i = 0; i < 3; ++i) {
        const Buffer view = buckets.gradient(i);
        std::vector<float> values(5000, 0.5F);
        if (step == 1 && c.rank() == 2 && i == 1)
          values[4100] = std::numeric_limits<float>::infinity();
        if (i < 2)
          on.copier.write(address_of(view), std::as_bytes(std::span(values).first(view.count)));
        buckets.ready_on(i, stream.get());
      }
      buckets.finish_on(stream.get());
      buckets.clip_on(1, stream.get());
      expect(buckets.finite() == (step != 1), "finite()");
      settle(on, stream);
      std::vector<float> values(5000);
      on.copier.read(std::as_writable_bytes(std::span(values)), address_of(buckets.gradient(1)));
      expect(std::isinf(values[4100]) == (step == 1), "the infinite one");
      expect((values[4000] == 0.5F) == (step == 1), "clipped");
    }
  }));
}

// Gradients of several blocks, some of which several buckets share.
TEST_CASE("norms of large gradients on a GPU have the bits of those in host memory",
          "[gradients]") {
  constexpr Shape shapes[] = {{9000, DType::f32},  {4096, DType::f64}, {20'001, DType::f32},
                              {8193, DType::bf16}, {1, DType::f32},    {12'000, DType::f16},
                              {4097, DType::f32}};
  const std::size_t cap = GENERATE(1024, 16'384, 30'016, std::size_t{1} << 20);
  CHECK_NOTHROW(run_on_gpus(gradient_setup(2), "large", [&](Communicator& c, OnGpu& on) {
    GradientOptions options;
    options.first_bucket_bytes = 512;
    options.bucket_bytes = cap;
    options.norms = true;
    Twins twins(c, on, shapes, options, Way::views);
    expect(twins.gpu.norm() == 0, "a norm before the first step");
    for (std::uint64_t step = 0; step < 3; ++step)
      twins.step({.clip = step == 0   ? -1.0
                          : step == 1 ? 3.7
                                      : 1e6},
                 10 * step + static_cast<std::uint64_t>(c.rank()), step % 2 == 0);
  }));
}

}  // namespace
}  // namespace rondo::testing

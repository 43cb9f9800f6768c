// SPDX-License-Identifier: Apache-2.0
//
// Gradients outside of buckets, in memory of a GPU: their norm has the bits of host memory, and
// comes after the stream that makes them.
#include <cmath>
#include <cstring>

#include "catch.h"
#include "gpu/gradients.h"
#include "support/draw.h"

namespace rondo::testing {
namespace {

using namespace std::chrono_literals;

constexpr Shape small_shapes[] = {{300}, {5000}};

Setup count_setup(int size = 2) {
  have_kernels();
  Setup setup;
  setup.size = size;
  setup.options.deadline = 10s;
  return setup;
}

GradientOptions with_norms() {
  GradientOptions options;
  options.norms = true;
  return options;
}

// A step in which every gradient is 1, on all ranks.
void step_of_ones(GradientBuckets& buckets, OnGpu& on, const device::Stream& stream) {
  const std::vector<float> ones(5000, 1);
  buckets.begin_step({.stream = stream.get()});
  for (std::size_t i = 0; i < buckets.parameter_count(); ++i) {
    const Buffer view = buckets.gradient(i);
    const auto bytes = std::as_bytes(std::span(ones).first(view.count));
    if (view.device < 0)
      std::memcpy(view.data, bytes.data(), bytes.size());
    else
      on.copier.write(address_of(view), bytes);
    buckets.ready_on(i, stream.get());
  }
  buckets.finish_on(stream.get());
}

// Values of one size, drawn. They begin `shift` elements behind the start of their memory.
class Outside {
 public:
  Outside(OnGpu& on, DType type, std::size_t count, std::size_t shift, Draw& draw)
      : type_(type),
        count_(count),
        shift_(shift * size_of(type)),
        bytes_(count * size_of(type)),
        memory_(on.gpu(), bytes_.size() + shift_ + 1) {
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(draw(256));
    for (std::size_t i = size_of(type) - 1; i < bytes_.size(); i += size_of(type))
      bytes_[i] = (bytes_[i] & std::byte{0x83}) | std::byte{0x3c};
    on.copier.write(memory_.address() + shift_, bytes_);
  }
  Buffer on_host() { return {bytes_.data(), count_, type_}; }
  Buffer on_gpu(const OnGpu& on) const {
    return {reinterpret_cast<void*>(memory_.address() + shift_), count_, type_, on.gpu().ordinal()};
  }

 private:
  DType type_;
  std::size_t count_, shift_;
  Bytes bytes_;
  device::DeviceMemory memory_;
};

TEST_CASE("gradients outside of buckets on a GPU have the norm of those in host memory",
          "[gradients]") {
  const DType type = GENERATE(DType::f64, DType::f32, DType::f16, DType::bf16);
  CHECK_NOTHROW(run_on_gpus(count_setup(), "counts", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    GradientBuckets host(c, parameters_of(small_shapes, -1), with_norms());
    GradientBuckets gpu(c, parameters_of(small_shapes, on.gpu().ordinal()), with_norms());
    Draw draw(size_of(type));
    const auto expect_same = [&](const char* what) {
      expect(host.norm() == gpu.norm(), what);
      expect(host.clip_factor(0.1) == gpu.clip_factor(0.1) && gpu.finite(), what);
    };
    // In one step they are all on the GPU, in the next one they alternate, and then begin in host
    // memory. More than 2^22 elements take several launches.
    for (int step = 0; step < 3; ++step) {
      step_of_ones(host, on, stream);
      step_of_ones(gpu, on, stream);
      std::size_t number = 0;
      for (const std::size_t count :
           {std::size_t{1}, std::size_t{0}, std::size_t{7}, std::size_t{4095}, std::size_t{4097},
            std::size_t{70'001}, (std::size_t{1} << 22) + 4099}) {
        if (count > 100'000 && (type != DType::f16 || step != 1)) continue;
        for (const std::size_t shift : {0, 1}) {
          Outside outside(on, type, count, shift, draw);
          const bool here = step > 0 && ++number % 2 == static_cast<std::size_t>(step - 1);
          host.count_in_norm(outside.on_host());
          gpu.count_in_norm_on(here ? outside.on_host() : outside.on_gpu(on), stream.get());
          if (count % 2 != 0) expect_same("after a gradient");
          settle(on, stream);
        }
      }
      expect_same("after all");
      host.clip(0.3);
      gpu.clip_on(0.3, stream.get());
      settle(on, stream);
      std::vector<float> values(5000);
      on.copier.read(std::as_writable_bytes(std::span(values)), address_of(gpu.gradient(1)));
      expect(std::memcmp(values.data(), host.gradient(1).data, 20'000) == 0, "another factor");
      expect(values[0] < 1, "nothing was clipped");
    }
    step_of_ones(gpu, on, stream);
    expect(gpu.norm() == std::sqrt(5300.0), "the next step begins anew");
  }));
}

TEST_CASE("an infinite gradient outside of buckets on a GPU is found", "[gradients]") {
  CHECK_NOTHROW(run_on_gpus(count_setup(), "infinite", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    GradientBuckets buckets(c, parameters_of(small_shapes, on.gpu().ordinal()), with_norms());
    step_of_ones(buckets, on, stream);
    const GpuFloats infinite(on, 5, HUGE_VALF);
    buckets.count_in_norm_on(infinite.buffer(), stream.get());
    expect(!buckets.finite(), "finite()");
    settle(on, stream);
  }));
}

// The stream is late, and what uses the sum is on another one.
TEST_CASE("count_in_norm_on() comes after its stream and before what uses the norm",
          "[gradients]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(count_setup(), "order", [&](Communicator& c, OnGpu& on) {
    const device::Stream a(on.gpu()), b(on.gpu());
    GradientBuckets buckets(c, parameters_of(small_shapes, on.gpu().ordinal()), with_norms());
    GpuFloats outside(on, 1000, 0);
    const PinnedBytes values(on, 4000);
    for (int round = 0; round < 5; ++round) {
      step_of_ones(buckets, on, a);
      settle(on, a);
      outside.set(0);
      std::fill_n(reinterpret_cast<float*>(values.data()), 1000, static_cast<float>(round + 1));
      fake.hold(b.get());
      values.to_gpu(outside.address(), 4000, b);
      fake.forbid_blocking(true);
      buckets.count_in_norm_on(outside.buffer(), b.get());
      buckets.clip_on(0, a.get());
      fake.forbid_blocking(false);
      fake.let_go(b.get());
      const double squares = 5300 + 1000.0 * (round + 1) * (round + 1);
      expect(buckets.norm() == std::sqrt(squares), "the gradient was read too early");
      settle(on, a);
      settle(on, b);
      float first = 1;
      fake.read(&first, address_of(buckets.gradient(0)), sizeof first);
      expect(first == 0, "it is not clipped");
    }
  }));
}

// The end of the buckets waits for the kernel that was launched, which reads and writes their
// memory, and gives that memory up when the stream is late.
TEST_CASE("count_in_norm_on() that fails half way leaves no kernel behind",
          "[gradients][abandons]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(count_setup(1), "half way", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu()), late(on.gpu());
    const GpuFloats outside(on, 1000, 1);
    GradientOptions options = with_norms();
    options.deadline = short_deadline;
    {
      GradientBuckets buckets(c, parameters_of(small_shapes, on.gpu().ordinal()), options);
      step_of_ones(buckets, on, stream);
      settle(on, stream);
      fake.hold(late.get());
      constexpr int out_of_memory = 2;
      fake.fail("cuLaunchKernel", 2, 1, out_of_memory);
      refused(Errc::system, "CUDA_ERROR_OUT_OF_MEMORY",
              [&] { buckets.count_in_norm_on(outside.buffer(), late.get()); });
    }
    fake.let_go(late.get());
    settle(on, late);
  }));
}

TEST_CASE("gradients outside of buckets on a GPU: what is refused", "[gradients]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(count_setup(1), "refused", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    GradientBuckets buckets(c, parameters_of(small_shapes, on.gpu().ordinal()), with_norms());
    GradientBuckets host(c, parameters_of(small_shapes, -1), with_norms());
    step_of_ones(buckets, on, stream);
    step_of_ones(host, on, stream);
    OnGpu other(1);
    const GpuFloats elsewhere(other, 10, 1), here(on, 10, 1);
    std::vector<float> memory(10);
    Buffer on_host = buffer_of(std::span(memory)), longer = here.buffer(), odd = here.buffer(),
           hidden = elsewhere.buffer(), whole = here.buffer();
    on_host.device = hidden.device = 0;
    longer.count = 1000;
    odd.data = static_cast<std::byte*>(odd.data) + 2;
    odd.count = 5;
    whole.type = DType::i32;
    const auto count = [&](GradientBuckets& to, const Buffer& gradient) {
      return [&, gradient] { to.count_in_norm_on(gradient, stream.get()); };
    };
    refused(Errc::invalid_argument,
            "on rank 0: count_in_norm(): the gradient is on GPU 1, but buckets are on GPU 0; copy "
            "it there, or to host memory",
            count(buckets, elsewhere.buffer()));
    refused(Errc::invalid_argument,
            "on rank 0: count_in_norm(): the gradient is on GPU 0, but buckets are in host memory; "
            "copy it there",
            count(host, here.buffer()));
    refused(Errc::invalid_argument, "the gradient is in host memory, but buckets are on GPU 0",
            count(buckets, on_host));
    refused(Errc::invalid_argument, "the gradient is in memory of GPU 1", count(buckets, hidden));
    refused(Errc::invalid_argument, "its memory on GPU 0 ends after", count(buckets, longer));
    refused(Errc::invalid_argument, "which is no address of f32", count(buckets, odd));
    refused(Errc::invalid_argument, "gradients of type i32 have no norm", count(buckets, whole));
    fake.capture(stream.get(), true);
    refused(Errc::unsupported, "on rank 0: count_in_norm(): the stream is being captured",
            count(buckets, here.buffer()));
    fake.capture(stream.get(), false);
    expect(buckets.norm() == std::sqrt(5300.0), "a refused gradient counts");
    buckets.count_in_norm(here.buffer());
    expect(buckets.norm() == std::sqrt(5310.0), "it goes on");
  }));
}

}  // namespace
}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
//
// Tests norms of gradients outside of buckets in GPU memory: each comes after the stream that makes
// the gradients.
#include <cmath>
#include <cstring>

#include "catch.h"
#include "grad/gpu.h"

namespace rondo::testing {
namespace {

using namespace std::chrono_literals;

constexpr Tensor small_shapes[] = {{300}, {5000}};

const GradientOptions with_norms{.norms = true};

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

// The stream is late, and what uses the sum is on another one.
TEST_CASE("count_in_norm_on() comes after its stream and before what uses the norm", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(gpu_setup(), "order", [&](Communicator& c, OnGpu& on) {
    const device::Stream a(on.gpu()), b(on.gpu());
    GradientBuckets buckets(c, parameters_of(small_shapes, on.gpu().ordinal()), with_norms);
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
TEST_CASE("count_in_norm_on() that fails half way leaves no kernel behind", "[gpu][abandons]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(gpu_setup(1), "half way", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu()), late(on.gpu());
    const GpuFloats outside(on, 1000, 1);
    {
      GradientBuckets buckets(c, parameters_of(small_shapes, on.gpu().ordinal()),
                              {.norms = true, .deadline = short_deadline});
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

TEST_CASE("gradients outside of buckets on a GPU: what is refused", "[gpu]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(run_on_gpus(gpu_setup(1), "refused", [&](Communicator& c, OnGpu& on) {
    const device::Stream stream(on.gpu());
    GradientBuckets buckets(c, parameters_of(small_shapes, on.gpu().ordinal()), with_norms);
    GradientBuckets host(c, parameters_of(small_shapes, -1), with_norms);
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

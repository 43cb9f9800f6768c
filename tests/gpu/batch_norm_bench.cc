// SPDX-License-Identifier: Apache-2.0
//
// Measures the passes of a batch norm layer on GPU 0, on one rank, beside copies on that GPU in the
// same rounds.
//   batch_norm_bench SAMPLES CHANNELS SPATIAL ROUNDS
// Prints one JSON object, {"results": [...]}: for each type and layout the median microseconds of a
// forward and of a backward pass, and what they reach of the rate of the copies. A byte that is
// loaded or stored counts once. Forward loads x twice and stores y; backward loads x and dy twice
// and stores dx.
#include <fmt/format.h>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <rondo/batch_norm.h>
#include <rondo/communicator.h>

#include "device/gpus.h"
#include "device/objects.h"
#include "support/fake_kernels.h"

namespace {

using namespace rondo;
using Clock = std::chrono::steady_clock;

struct Size {
  std::size_t samples, channels, spatial;
  std::size_t elements() const noexcept { return samples * channels * spatial; }
};

constexpr double forward_bytes = 3, backward_bytes = 5, copy_bytes = 2;  // for each of the tensor

class Bench {
 public:
  Bench(Communicator& communicator, const device::Gpu& gpu, Size size, DType type,
        TensorLayout layout)
      : gpu_(gpu),
        size_(size),
        bytes_(size.elements() * size_of(type)),
        stream_(gpu),
        x_(gpu, bytes_),
        y_(gpu, bytes_),
        dx_(gpu, bytes_),
        layer_(communicator, size.channels,
               {.name = "bench", .type = type, .layout = layout, .device = gpu.ordinal()}) {
    layer_.set_stream(stream_.get());
    // Zeros may be moved faster than other values. These are those of f32 and f16 near 1.
    const device::PinnedMemory values(gpu, bytes_);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < bytes_; i += sizeof(std::uint16_t)) {
      state = state * 1664525 + 1013904223;
      const auto value = static_cast<std::uint16_t>(0x3c00 + (state >> 24));
      std::memcpy(values.data() + i, &value, sizeof value);
    }
    microseconds_of([&] {
      const device::Current current(gpu_);
      gpu_.check(gpu_.driver().copy_to_device(x_.address(), values.data(), bytes_, stream_.get()),
                 "the input");
    });
  }

  void run(int rounds) {
    for (int i = 0; i < rounds + 2; ++i) {  // the first two warm up
      const double copy = microseconds_of([&] { this->copy(); });
      BatchNormPass pass;
      const double forward = microseconds_of([&] { pass = layer_.forward(view(x_), view(y_)); });
      const double backward =
          microseconds_of([&] { layer_.backward(pass, view(x_), view(y_), view(dx_), {}); });
      if (i < 2) continue;
      copies_.push_back(copy);
      forwards_.push_back(forward);
      backwards_.push_back(backward);
    }
  }

  std::string result(const char* pass, std::string_view type, std::string_view layout) {
    const bool forward = std::string_view(pass) == "forward";
    const double time = median(forward ? forwards_ : backwards_), copy = median(copies_);
    const double moved = (forward ? forward_bytes : backward_bytes) * static_cast<double>(bytes_);
    const double rate = moved / time / 1e3;
    const double copied = copy_bytes * static_cast<double>(bytes_) / copy / 1e3;
    return fmt::format(R"({{"name": "batch norm {} {} {}", "bytes": {}, "p50_us": {:.1f}, )"
                       R"("rate": {:.3f}, "copy_rate": {:.3f}, "ceiling_percent": {:.1f}}})",
                       pass, type, layout, bytes_, time, rate, copied, 100 * rate / copied);
  }

 private:
  Activations view(const device::DeviceMemory& memory) const noexcept {
    return {reinterpret_cast<void*>(memory.address()), size_.samples, size_.spatial};
  }
  void copy() {
    const device::Current current(gpu_);
    gpu_.check(gpu_.driver().copy_on_device(y_.address(), x_.address(), bytes_, stream_.get()),
               "the copy");
  }
  // Until the GPU has done it.
  template <class Function>
  double microseconds_of(Function function) {
    const Clock::time_point begin = Clock::now();
    function();
    const device::Current current(gpu_);
    gpu_.check(end_.record(stream_.get()), "cuEventRecord");
    while (end_.query() == device::not_ready) ::sched_yield();
    gpu_.check(end_.query(), "the work");
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }
  static double median(std::vector<double>& values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  }

  const device::Gpu& gpu_;
  const Size size_;
  const std::size_t bytes_;
  device::Stream stream_;
  device::Event end_{gpu_};
  device::DeviceMemory x_, y_, dx_;
  SyncBatchNorm layer_;
  std::vector<double> copies_, forwards_, backwards_;
};

void run(Size size, int rounds) {
  device::Gpus gpus;
  Communicator communicator =
      Communicator::connect({.rank = 0, .size = 1, .rendezvous = "tcp://127.0.0.1:1"});
  std::string results;
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    for (const bool nhwc : {false, true}) {
      Bench bench(communicator, gpus.gpu(0), size, type,
                  nhwc ? TensorLayout::nhwc : TensorLayout::nchw);
      bench.run(rounds);
      for (const char* pass : {"forward", "backward"})
        results += fmt::format("{}\n  {}", results.empty() ? "" : ",",
                               bench.result(pass, name_of(type), nhwc ? "NHWC" : "NCHW"));
    }
  fmt::print("{{\"results\": [{}\n]}}\n", results);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  std::size_t numbers[4];
  for (int i = 0; i < 4; ++i) {
    numbers[i] = std::strtoull(argv[i + 1], nullptr, 10);
    if (numbers[i] == 0) return 2;
  }
  try {
    if (FakeCuda::needs_kernels()) testing::register_device_kernels(FakeCuda());
    run({numbers[0], numbers[1], numbers[2]}, static_cast<int>(numbers[3]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "batch_norm_bench: {}\n", error.what());
    return 1;
  }
}

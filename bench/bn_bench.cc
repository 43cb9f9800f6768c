// SPDX-License-Identifier: Apache-2.0
//
// Measures batch norm.
//
//   bn_bench
//   rondo run -n 4 -- bn_bench [CHANNELS]
//
// On one rank: forward and backward of 64 x 64 x 56 x 56 and of smaller tensors, compared with a
// floor: plain loops that move the same bytes in the same rounds.
// On several ranks: the communication of a layer of 256 channels, from begin to end, with almost
// nothing to compute. It is compared with an all_reduce of the same size.
#include <fmt/format.h>

#include <time.h>

#include <rondo/batch_norm.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <vector>

namespace {

using namespace rondo;
using Clock = std::chrono::steady_clock;

// Processor time of this thread, which does not count other work of a busy machine.
template <class Function>
double processor_microseconds_of(Function function) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  };
  const double start = now();
  function();
  return now() - start;
}

template <class Function>
double microseconds_of(Function function) {
  const Clock::time_point start = Clock::now();
  function();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

[[gnu::target_clones("default", "avx2", "avx512f")]] std::uint64_t read_all(
    const std::uint64_t* words, std::size_t count) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}
[[gnu::target_clones("default", "avx2", "avx512f")]] void copy_all(
    const std::uint64_t* __restrict from, std::uint64_t* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i] + 1;
}

struct Times {
  std::vector<double> read, copy, forward, backward;
};

// Compares each round with the floor of the same round, so that other work of the machine slows
// down both.
void print_row(const char* pass, const Times& times, const std::vector<double>& measured,
               double reads, double bytes) {
  std::vector<double> parts;
  for (std::size_t i = 0; i < measured.size(); ++i)
    parts.push_back((reads * times.read[i] + times.copy[i]) / measured[i]);
  const double time = quantile(measured, 0.5);
  fmt::print("    {:<9} {:8.2f} ms  {:6.1f} GB/s  {:5.2f} of the floor\n", pass, time / 1000,
             bytes / time / 1000, quantile(parts, 0.5));
}

void measure_kernels(Communicator& communicator, TensorLayout layout, DType type,
                     std::size_t channels, std::size_t side) {
  constexpr std::size_t samples = 64;
  const std::size_t spatial = side * side, count = samples * channels * spatial,
                    bytes = count * size_of(type);
  Memory x(bytes), y(bytes), dy(bytes), dx(bytes);
  for (std::size_t i = 0; i < count; ++i) {
    // A pattern of ordinary numbers in every type.
    const float value = static_cast<float>(i * 2654435761u % 1024) / 512 - 1;
    for (const Memory* memory : {&x, &dy}) {
      if (type == DType::f32) static_cast<float*>(memory->data())[i] = value;
      if (type == DType::bf16) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        static_cast<std::uint16_t*>(memory->data())[i] = static_cast<std::uint16_t>(bits >> 16);
      }
      if (type == DType::f16)
        static_cast<std::uint16_t*>(memory->data())[i] = static_cast<std::uint16_t>(i % 0x4000);
    }
  }
  SyncBatchNorm layer(communicator, channels,
                      {.name = "bench", .type = type, .layout = layout, .threads = 1});
  const auto of = [&](const Memory& memory) {
    return Activations{memory.data(), samples, spatial};
  };
  const auto words = [](const Memory& memory) {
    return static_cast<std::uint64_t*>(memory.data());
  };
  Times times;
  std::uint64_t seen = 0;
  for (int round = 0; round < 25; ++round) {
    times.read.push_back(processor_microseconds_of([&] { seen += read_all(words(x), bytes / 8); }));
    times.copy.push_back(
        processor_microseconds_of([&] { copy_all(words(x), words(y), bytes / 8); }));
    BatchNormPass pass;
    times.forward.push_back(processor_microseconds_of([&] { pass = layer.forward(of(x), of(y)); }));
    times.backward.push_back(
        processor_microseconds_of([&] { layer.backward(pass, of(x), of(dy), of(dx), {}); }));
  }
  const double read = quantile(times.read, 0.5), copy = quantile(times.copy, 0.5),
               all = static_cast<double>(bytes);
  fmt::print("  {} {} {}x{}x{}x{}, {:.1f} MB, one thread; read {:.1f} GB/s, copy {:.1f} GB/s{}\n",
             layout == TensorLayout::nchw ? "nchw" : "nhwc", name_of(type), samples, channels, side,
             side, all / 1e6, all / read / 1000, 2 * all / copy / 1000, seen == 1 ? "." : "");
  print_row("forward", times, times.forward, 1, 3 * all);
  print_row("backward", times, times.backward, 3, 5 * all);
}

void measure_communication(Communicator& communicator, std::size_t channels) {
  SyncBatchNorm layer(communicator, channels, {.name = "bn"});
  std::vector<float> in(2 * channels, static_cast<float>(communicator.rank())), out = in;
  const Activations x{in.data(), 2, 1}, y{out.data(), 2, 1};
  const std::size_t elements = 25 + 2 * channels;
  Memory payload = communicator.allocate(elements * sizeof(double));
  const Buffer buffer{payload.data(), elements, DType::f64};
  OpOptions urgent;
  urgent.priority = Priority::urgent;
  std::vector<double> plain, forward, backward;
  for (int round = 0; round < 3000; ++round) {
    communicator.barrier().wait();
    BatchNormPass pass;
    const double there = microseconds_of([&] { pass = layer.forward(x, y); });
    const double back = microseconds_of([&] { layer.backward(pass, x, y, y, {}); });
    communicator.barrier().wait();
    const double bare = microseconds_of(
        [&] { communicator.all_reduce(buffer, buffer, ReduceOp::sum, urgent).wait(); });
    if (round < 500) continue;
    plain.push_back(bare);
    forward.push_back(there);
    backward.push_back(back);
  }
  if (communicator.rank() != 0) return;
  fmt::print("{} ranks, {} channels ({}): microseconds from begin to end\n", communicator.size(),
             channels, communicator.describe(Collective::all_reduce, elements, DType::f64));
  for (const auto& [name, times] : {std::pair("all_reduce", &plain), std::pair("forward", &forward),
                                    std::pair("backward", &backward)})
    fmt::print("  {:<10} p50 {:7.1f}  p90 {:7.1f}  p99 {:7.1f}\n", name, quantile(*times, 0.5),
               quantile(*times, 0.9), quantile(*times, 0.99));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Communicator communicator = Communicator::connect();
    if (communicator.size() > 1 || argc > 1) {
      measure_communication(communicator, argc > 1 ? std::stoul(argv[1]) : 256);
      return 0;
    }
    fmt::print(
        "floor: forward reads x twice and writes y once, backward reads x and dy twice and writes "
        "dx once\n");
    for (const DType type : {DType::f32, DType::bf16, DType::f16})
      for (const TensorLayout layout : {TensorLayout::nchw, TensorLayout::nhwc})
        measure_kernels(communicator, layout, type, 64, 56);
    // As in the later stages of a network: more channels, fewer positions.
    for (const auto& [channels, side] : {std::pair<std::size_t, std::size_t>{256, 14}, {512, 7}})
      for (const TensorLayout layout : {TensorLayout::nchw, TensorLayout::nhwc})
        measure_kernels(communicator, layout, DType::f32, channels, side);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bn_bench: {}\n", error.what());
    return 1;
  }
}

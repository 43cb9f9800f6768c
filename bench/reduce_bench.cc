// SPDX-License-Identifier: Apache-2.0
//
// Compares reduction kernels with memcpy. bytes_per_second counts the bytes of the result only, so
// that types compare directly; "traffic" counts all bytes read and written. Buffers of 256 KiB stay
// in the L2 cache, those of 64 MiB do not.
//
//   reduce_bench --benchmark_filter=sum/f32
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "collectives/kernels/reduce.h"

namespace {

using namespace rondo;

struct Release {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Release>;

// Memory filled with bytes that are ordinary numbers in every type.
Memory make_memory(std::size_t bytes) {
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
  std::memset(memory.get(), 0x35, bytes);
  return memory;
}

void count_bytes(benchmark::State& state, std::size_t bytes, std::size_t passes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
  state.counters["traffic"] =
      benchmark::Counter(static_cast<double>(state.iterations() * bytes * passes),
                         benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}

void copy(benchmark::State& state, std::size_t bytes) {
  const Memory in = make_memory(bytes), out = make_memory(bytes);
  for (auto _ : state) {
    std::memcpy(out.get(), in.get(), bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes, 2);
}

void reduce(benchmark::State& state, base::Isa isa, DType type, ReduceOp op, std::size_t sources,
            std::size_t bytes, kernels::Finish finish) {
  std::vector<Memory> memory;
  std::vector<const std::byte*> in;
  for (std::size_t s = 0; s < sources; ++s)
    in.push_back(memory.emplace_back(make_memory(bytes)).get());
  const Memory out = make_memory(bytes);
  const kernels::ReduceFunction function = kernels::find_reduce(type, op, isa);
  for (auto _ : state) {
    function(out.get(), in.data(), sources, bytes / size_of(type), finish);
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes, sources + 1);
}

void add(base::Isa isa, DType type, ReduceOp op, std::size_t sources, std::size_t bytes,
         kernels::Finish finish = {}) {
  if (kernels::find_reduce(type, op, isa) == nullptr) return;
  std::string name = std::string(name_of(op)) + "/" + std::string(name_of(type)) + "/" +
                     std::string(base::name_of(isa)) + "/sources:" + std::to_string(sources) +
                     "/KiB:" + std::to_string(bytes >> 10);
  if (finish.needed()) name += "/finish";
  benchmark::RegisterBenchmark(name.c_str(), reduce, isa, type, op, sources, bytes, finish)
      ->MinTime(0.1);
}

void add_all() {
  for (const std::size_t bytes : {std::size_t{256} << 10, std::size_t{64} << 20}) {
    benchmark::RegisterBenchmark(("memcpy/KiB:" + std::to_string(bytes >> 10)).c_str(), copy, bytes)
        ->MinTime(0.1);
    for (const base::Isa isa : {base::Isa::avx512, base::Isa::avx2, base::Isa::scalar}) {
      for (int t = 0; t < dtype_count; ++t) {
        const auto type = static_cast<DType>(t);
        add(isa, type, ReduceOp::sum, 2, bytes);
        add(isa, type, ReduceOp::sum, 4, bytes);
        add(isa, type, ReduceOp::mean, 2, bytes, kernels::Finish{1, 3});
        for (const ReduceOp op : {ReduceOp::product, ReduceOp::max}) add(isa, type, op, 2, bytes);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

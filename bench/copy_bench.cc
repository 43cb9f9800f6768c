// SPDX-License-Identifier: Apache-2.0
//
// Compares the copy of payloads (base/copy.h) with memcpy, with the destination at several
// distances from the source modulo a page. 16 is what a block from malloc() and shared memory have.
//
//   copy_bench --benchmark_filter=KiB:256
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/copy.h"

namespace {

using Copy = void (*)(std::byte*, const std::byte*, std::size_t);

constexpr std::size_t page = 4096;

void by_library(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void by_rondo(std::byte* to, const std::byte* from, std::size_t bytes) {
  rondo::base::copy_bytes(to, from, bytes);
}

std::byte* aligned(std::vector<std::byte>& memory) {
  void* start = memory.data();
  std::size_t room = memory.size();
  return static_cast<std::byte*>(std::align(page, 1, start, room));
}

void copy(benchmark::State& state, Copy function, std::size_t bytes, std::size_t distance) {
  std::vector<std::byte> in(bytes + page, std::byte{1}), out(bytes + 2 * page);
  const std::byte* const from = aligned(in);
  std::byte* const to = aligned(out) + distance;
  for (auto _ : state) {
    function(to, from, bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

void add_all() {
  constexpr std::array<std::pair<const char*, Copy>, 2> functions{
      {{"memcpy", by_library}, {"rondo", by_rondo}}};
  for (const std::size_t kib : {4, 64, 256, 16 << 10})
    for (const std::size_t distance : {0, 16, 64, 2048})
      for (const auto& [name, function] : functions)
        benchmark::RegisterBenchmark((std::string(name) + "/KiB:" + std::to_string(kib) +
                                      "/distance:" + std::to_string(distance))
                                         .c_str(),
                                     copy, function, kib << 10, distance)
            ->MinTime(0.1);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  add_all();
  benchmark::RunSpecifiedBenchmarks();
}

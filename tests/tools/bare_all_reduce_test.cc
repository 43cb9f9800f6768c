// SPDX-License-Identifier: Apache-2.0
#include "tools/ceilings/bare_all_reduce.h"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <vector>

#include "base/shared_memory.h"
#include "catch.h"
#include "support/ranks.h"

using rondo::base::Mapping;
using rondo::testing::expect;
using rondo::testing::run_ranks;
using rondo::tools::BareAllReduce;

namespace {

// Zeros that all ranks share.
Mapping memory_for(int ranks) {
  const std::size_t bytes = BareAllReduce::memory_bytes(ranks);
  return {rondo::base::make_shared_memory(bytes).get(), bytes, Mapping::Access::write};
}

}  // namespace

TEST_CASE("the bare all-reduce sums right, around its lines, parts and chunks, call after call") {
  for (const int size : {1, 2, 3, 5}) {
    const Mapping memory = memory_for(size);
    run_ranks(size, fmt::format("{} ranks", size), [&](int rank) {
      BareAllReduce bare(rank, size, memory.data(), [](auto waited) {
        if (waited > std::chrono::seconds(60)) throw std::runtime_error("waits for a minute");
      });
      for (const std::size_t count : {1, 2, 14, 15, 16, 17, 250, 4096, 16385, 65537, 300'001}) {
        std::vector<float> in(count), out(count);
        const double seconds =
            bare.prepare(std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)));
        expect(seconds > 0, "a call takes no time");
        for (int call = 0; call < 9; ++call) {
          for (std::size_t i = 0; i < count; ++i)
            in[i] = static_cast<float>((i + static_cast<std::size_t>(call)) % 1000) +
                    static_cast<float>(rank * 1000);
          bare.all_reduce();
          for (std::size_t i = 0; i < count; ++i) {
            const auto mine = static_cast<float>((i + static_cast<std::size_t>(call)) % 1000);
            const float sum =
                mine * static_cast<float>(size) + static_cast<float>(size * (size - 1) / 2 * 1000);
            expect(out[i] == sum, [&] {
              return fmt::format("{} elements, call {}: [{}] is {}, not {}", count, call, i, out[i],
                                 sum);
            });
          }
          bare.barrier();
        }
      }
    });
  }
}

TEST_CASE("a wait of the bare all-reduce ends by what its look throws") {
  const Mapping memory = memory_for(2);
  BareAllReduce bare(0, 2, memory.data(), [](auto waited) {
    if (waited > std::chrono::milliseconds(20)) throw std::runtime_error("enough");
  });
  CHECK_THROWS_WITH(bare.barrier(), "enough");
}

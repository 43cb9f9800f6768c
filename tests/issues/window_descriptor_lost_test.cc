// SPDX-License-Identifier: Apache-2.0
//
// When a rank had no free descriptor number for the memory of a peer, it lost that memory for good.
// When the memory was used, the communicator failed.
#include <cstring>
#include <memory>

#include <rondo/communicator.h>

#include "base/clock.h"
#include "catch.h"
#include "support/no_descriptors.h"
#include "support/ranks.h"
#include "transports/shm_helpers.h"

namespace rondo::testing {
namespace {

constexpr std::size_t bytes = std::size_t{1} << 20;

}  // namespace

TEST_CASE("memory that a peer cannot take for a while lies nowhere, and then where it is",
          "[shm][starved]") {
  auto transports = shm_transports(3);
  auto memory = transports[1]->allocate(bytes);
  std::memset(memory->memory().data(), 7, bytes);
  {
    const NoDescriptors none;
    for (int i = 0; i < 5; ++i)
      CHECK(find_everywhere(transports, 1, memory->memory().data(), bytes).generation == 0);
  }
  const base::TimePoint until = base::Clock::now() + std::chrono::seconds{30};
  transports::WindowPlace place;
  while (place.generation == 0 && base::Clock::now() < until)
    place = find_everywhere(transports, 1, memory->memory().data(), bytes);
  REQUIRE(place.generation != 0);
  for (const std::size_t peer : {0u, 2u}) {
    const std::byte* const there = transports[peer]->windows()->map(1, place, bytes);
    REQUIRE(there != nullptr);
    CHECK(there[bytes - 1] == std::byte{7});
  }
}

TEST_CASE("operations on memory that a peer cannot map give the right sums", "[shm][starved]") {
  std::unique_ptr<NoDescriptors> none;
  Setup setup;
  setup.size = 3;
  setup.over = Over::shm;
  run_communicators(
      setup, "sums without a descriptor to spare", [&](Communicator& communicator, int rank) {
        constexpr std::size_t count = bytes / sizeof(float);
        const Memory in = communicator.allocate(bytes), out = communicator.allocate(bytes);
        communicator.barrier().wait();
        if (rank == 0) none = std::make_unique<NoDescriptors>();
        communicator.barrier().wait();
        for (int round = 0; round < 8; ++round) {
          if (round == 4) {
            communicator.barrier().wait();
            if (rank == 0) none.reset();
            communicator.barrier().wait();
          }
          auto* const values = static_cast<float*>(in.data());
          for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(round + rank);
          communicator
              .all_reduce({in.data(), count, DType::f32}, {out.data(), count, DType::f32},
                          ReduceOp::sum)
              .wait();
          const auto* const sums = static_cast<const float*>(out.data());
          for (const std::size_t i : {std::size_t{0}, count / 2, count - 1})
            expect(sums[i] == static_cast<float>(3 * round + 3), "a wrong sum");
        }
      });
}

}  // namespace rondo::testing

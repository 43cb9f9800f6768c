// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "catch.h"
#include "shm_helpers.h"
#include "transports/host/extent.h"
#include "transports/host/passing.h"

namespace rondo::testing {
namespace {

std::ptrdiff_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

}  // namespace

TEST_CASE("ranks of a host share areas and what they allocate, and nothing else") {
  auto transports = shm_transports(2);
  transports::Windows* const of0 = transports[0]->windows();
  transports::Windows* const of1 = transports[1]->windows();
  REQUIRE(of0 != nullptr);
  CHECK(std::vector<int>(of0->ranks().begin(), of0->ranks().end()) == std::vector<int>{0, 1});
  CHECK(of0->area(2) == nullptr);
  std::memset(of1->area(1), 9, transports::window_area_bytes);
  CHECK(of0->area(1)[transports::window_area_bytes - 1] == std::byte{9});
  CHECK(of0->area(0)[0] == std::byte{0});

  auto memory = transports[1]->allocate(100);
  REQUIRE(memory->memory().size() == 100);
  std::memset(memory->memory().data(), 7, 100);
  CHECK(of1->find(memory->memory().data() + 10, 90).generation == 0);
  CHECK(of0->map(1, {0, 1, 10}, 90) == nullptr);
  const transports::WindowPlace place =
      find_everywhere(transports, 1, memory->memory().data() + 10, 90);
  REQUIRE(place.generation != 0);
  CHECK(place.offset == 10);
  std::byte* const there = of0->map(1, place, 90);
  REQUIRE(there != nullptr);
  CHECK(there[89] == std::byte{7});
  there[0] = std::byte{8};
  CHECK(memory->memory()[10] == std::byte{8});
  const std::size_t extent = host::Extent(0).bytes();
  CHECK(of0->map(1, place, extent - 10) != nullptr);
  CHECK(of0->map(1, place, extent - 9) == nullptr);
  CHECK(of0->map(1, {place.slot, place.generation, extent + 1}, 0) == nullptr);
  CHECK(of0->map(1, {place.slot, place.generation, UINT64_MAX}, 2) == nullptr);
  CHECK(of0->map(1, {place.slot + 1, place.generation, 0}, 1) == nullptr);
  CHECK(of0->map(1, {place.slot + 1000, place.generation, 0}, 1) == nullptr);
  CHECK(of0->map(1, {}, 0) == nullptr);
  CHECK(of0->map(0, place, 1) == nullptr);
  CHECK(of1->find(memory->memory().data() + 10, 91).generation == 0);
  int elsewhere = 0;
  CHECK(of1->find(&elsewhere, sizeof elsewhere).generation == 0);
  CHECK(of1->find(nullptr, 0).generation == 0);
  const std::byte* const freed = memory->memory().data();
  memory.reset();
  CHECK(of1->find(freed, 1).generation == 0);
}

TEST_CASE("what has been found is found no more once it is freed, whatever else is allocated") {
  auto transports = shm_transports(2);
  const auto other = transports[1]->allocate(100);
  auto memory = transports[1]->allocate(100);
  const std::byte* const freed = memory->memory().data();
  CHECK(find_everywhere(transports, 1, freed, 100).generation != 0);
  memory.reset();
  CHECK(transports[1]->windows()->find(freed, 100).generation == 0);
  CHECK(transports[1]->windows()->find(other->memory().data(), 100).generation != 0);
}

TEST_CASE("memory that is used again is zero, and the others see what is written to it") {
  auto transports = shm_transports(3);
  for (int i = 1; i <= 20; ++i) {
    auto memory = transports[2]->allocate(5000 + static_cast<std::size_t>(i));
    CHECK(memory->memory()[0] == std::byte{0});
    memory->memory()[0] = static_cast<std::byte>(i);
    const transports::WindowPlace place =
        find_everywhere(transports, 2, memory->memory().data(), memory->memory().size());
    for (const int rank : {0, 1}) {
      const std::byte* const there = transports[static_cast<std::size_t>(rank)]->windows()->map(
          2, place, memory->memory().size());
      REQUIRE(there != nullptr);
      CHECK(*there == static_cast<std::byte>(i));
    }
  }
}

TEST_CASE("what a peer has freed reads as zeros, and after a failure nobody else gets it") {
  auto transports = shm_transports(2);
  auto memory = transports[1]->allocate(5000);
  memory->memory()[0] = std::byte{1};
  const transports::WindowPlace place =
      find_everywhere(transports, 1, memory->memory().data(), 5000);
  const volatile std::byte* const there = transports[0]->windows()->map(1, place, 5000);
  REQUIRE(there != nullptr);
  CHECK(*there == std::byte{1});
  transports[1]->halt();
  memory.reset();
  CHECK(*there == std::byte{0});
  memory = transports[1]->allocate(5000);
  memory->memory()[0] = std::byte{2};
  const transports::WindowPlace next =
      find_everywhere(transports, 1, memory->memory().data(), 5000);
  CHECK(next.offset != place.offset);
  CHECK(*transports[0]->windows()->map(1, next, 5000) == std::byte{2});
  CHECK(*there == std::byte{0});
}

TEST_CASE("allocating and freeing leaves nothing behind") {
  auto transports = shm_transports(2);
  std::ptrdiff_t descriptors = 0, maps = 0;
  std::vector<std::unique_ptr<transports::Allocation>> kept;
  const std::byte* there = nullptr;
  for (std::size_t i = 0; i < 10'000; ++i) {
    // Small and large allocations, freed in another order than they were made. Each must be zero,
    // whatever was written there before.
    kept.push_back(transports[1]->allocate(i % 7 == 0 ? 3'000'000 : 10'000));
    REQUIRE(kept.back());
    const auto memory = kept.back()->memory();
    CHECK(memory.front() == std::byte{0});
    CHECK(memory.back() == std::byte{0});
    memory.front() = memory.back() = std::byte{1};
    const transports::WindowPlace place =
        find_everywhere(transports, 1, memory.data(), memory.size());
    REQUIRE(place.generation != 0);
    there = transports[0]->windows()->map(1, place, memory.size());
    REQUIRE(there != nullptr);
    CHECK(*there == std::byte{1});
    if (kept.size() == 20) kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i * 7 % 20));
    if (i != 1000) continue;
    descriptors = open_descriptors();
    maps = mappings();
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(mappings() == maps);
  kept.clear();
  CHECK(*there == std::byte{0});
  // The whole extent is one free range again.
  CHECK(transports[1]->allocate(host::Extent(0).bytes())->memory().size() ==
        host::Extent(0).bytes());
  CHECK(mappings() == maps);
}

TEST_CASE("allocations cost one descriptor, also while the peers do nothing") {
  auto transports = shm_transports(3);
  const std::ptrdiff_t before = open_descriptors();
  std::vector<std::unique_ptr<transports::Allocation>> kept;
  for (int i = 0; i < 3000; ++i) {
    kept.push_back(transports[1]->allocate(4096));
    transports[1]->windows()->find(kept.back()->memory().data(), 4096);
  }
  CHECK(open_descriptors() <= before + 1);
  for (const auto& one : kept) {
    const transports::WindowPlace place =
        find_everywhere(transports, 1, one->memory().data(), 4096);
    REQUIRE(place.generation != 0);
    CHECK(transports[2]->windows()->map(1, place, 4096) != nullptr);
  }
  CHECK(open_descriptors() <= before + 3);
}

TEST_CASE("a descriptor is with a few peers at a time, as long as these have not taken it") {
  constexpr std::size_t size = 32, at_once = 256 / size;
  if (!have_room(size)) {
    WARN("skipped: the hard limit of open files leaves no room for 32 ranks in one process");
    return;
  }
  auto transports = shm_transports(size);
  const auto memory = transports[0]->allocate(4096);
  const std::byte* const data = memory->memory().data();
  for (int i = 0; i < 10; ++i) CHECK(transports[0]->windows()->find(data, 1).generation == 0);
  const auto there = [&] {
    std::size_t count = 0;
    for (std::size_t rank = 1; rank < size; ++rank) {
      transports[rank]->windows()->find(nullptr, 0);
      if (transports[rank]->windows()->map(0, {0, 1, 0}, 1) != nullptr) ++count;
    }
    return count;
  };
  CHECK(there() == at_once);
  for (std::size_t i = 1; i < size / at_once; ++i) find_everywhere(transports, 0, data, 1);
  CHECK(there() == size - 1);
  CHECK(transports[0]->windows()->find(data, 1).generation != 0);
}

TEST_CASE("memory may outlive its transport") {
  auto transports = shm_transports(2);
  auto memory = transports[1]->allocate(1 << 20);
  const transports::WindowPlace place =
      find_everywhere(transports, 1, memory->memory().data(), 1 << 20);
  const std::byte* const there = transports[0]->windows()->map(1, place, 1 << 20);
  REQUIRE(there != nullptr);
  transports[1].reset();
  memory->memory()[5] = std::byte{5};
  CHECK(there[5] == std::byte{5});
  transports[0].reset();
  memory->memory()[6] = std::byte{6};
  memory.reset();
}

TEST_CASE("a window may be larger than 4 GiB") {
  auto transports = shm_transports(2);
  const std::size_t bytes = (std::size_t{5} << 30) + 1;
  auto memory = transports[0]->allocate(bytes);
  memory->memory()[bytes - 1] = std::byte{3};
  const transports::WindowPlace place =
      find_everywhere(transports, 0, &memory->memory()[bytes - 1], 1);
  CHECK(place.offset == bytes - 1);
  const std::byte* const there = transports[1]->windows()->map(0, place, 1);
  REQUIRE(there != nullptr);
  CHECK(*there == std::byte{3});
}

TEST_CASE("a notification wakes who sleeps on shared memory, once") {
  auto transports = shm_transports(2);
  pollfd descriptor{transports[1]->wake_source().descriptor, POLLIN, 0};
  transports[0]->windows()->notify();
  CHECK(::poll(&descriptor, 1, 0) == 0);
  CHECK(transports[1]->prepare_sleep());
  transports[0]->windows()->notify();
  CHECK(::poll(&descriptor, 1, 0) == 1);
}

TEST_CASE("a notification wakes only ranks that await the one who stores") {
  auto transports = shm_transports(3);
  transports[2]->windows()->await(transports::wake_bit(1));
  CHECK(transports[2]->prepare_sleep());
  pollfd descriptor{transports[2]->wake_source().descriptor, POLLIN, 0};
  transports[0]->windows()->notify();
  CHECK(::poll(&descriptor, 1, 0) == 0);
  transports[2]->windows()->await(transports::every_wake_bit);
  transports[0]->windows()->notify();
  CHECK(::poll(&descriptor, 1, 0) == 1);
}

TEST_CASE("a rank that has left in order has not died") {
  auto transports = shm_transports(2);
  const auto& passing = dynamic_cast<host::DescriptorPassing&>(*transports[0]->windows());
  CHECK_FALSE(passing.has_died(1));
  transports[1].reset();
  CHECK_FALSE(passing.has_died(1));
}

TEST_CASE("a rank that is alone on its host has no windows") {
  auto transports =
      shm_transports(3, [](shm::Options& options) { options.host = std::to_string(options.rank); });
  CHECK(transports[0]->windows() == nullptr);
  CHECK(transports[0]->allocate(8) == nullptr);
  CHECK_FALSE(transports[0]->reach(1, transports[1]->address()).distance);
}

}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <cstring>

#include "catch.h"
#include "transports/mem/mem.h"

namespace rondo {

TEST_CASE("ranks of a fabric with windows share areas and what they allocate, and nothing else") {
  mem::MemFaults faults;
  faults.windows = true;
  mem::MemFabric fabric(2, faults);
  const auto rank0 = fabric.endpoint(0), rank1 = fabric.endpoint(1);
  transports::Windows* const of0 = rank0->windows();
  transports::Windows* const of1 = rank1->windows();
  REQUIRE(of0 != nullptr);
  CHECK(of0->ranks().size() == 2);
  CHECK(of0->area(1) == of1->area(1));
  CHECK(of0->area(0) != of0->area(1));
  CHECK(of0->area(0)[transports::window_area_bytes - 1] == std::byte{0});

  auto memory = rank1->allocate(100);
  REQUIRE(memory->memory().size() == 100);
  std::memset(memory->memory().data(), 7, 100);
  const transports::WindowPlace place = of1->find(memory->memory().data() + 10, 90);
  REQUIRE(place.generation != 0);
  CHECK(of0->map(1, place, 90)[89] == std::byte{7});
  CHECK(of0->map(1, place, 91) == nullptr);
  CHECK(of0->map(0, place, 1) == nullptr);
  CHECK(of1->find(memory->memory().data() + 10, 91).generation == 0);
  int elsewhere = 0;
  CHECK(of1->find(&elsewhere, sizeof elsewhere).generation == 0);
  memory.reset();
  CHECK(of0->map(1, place, 90) == nullptr);
}

TEST_CASE("a notification wakes who sleeps") {
  mem::MemFaults faults;
  faults.windows = true;
  mem::MemFabric fabric(2, faults);
  const auto rank0 = fabric.endpoint(0), rank1 = fabric.endpoint(1);
  CHECK(rank1->prepare_sleep());
  rank0->windows()->notify();
  pollfd descriptor{rank1->wake_source().descriptor, POLLIN, 0};
  CHECK(::poll(&descriptor, 1, 0) == 1);
}

TEST_CASE("without windows a transport says so") {
  mem::MemFabric fabric(2);
  const auto rank0 = fabric.endpoint(0);
  CHECK(rank0->windows() == nullptr);
  CHECK(rank0->allocate(8) == nullptr);
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
#include "tools/ceilings/ceiling.h"

#include <array>
#include <cstddef>
#include <vector>

#include "catch.h"
#include "support/ranks.h"

using rondo::Communicator;
using rondo::testing::expect;
using rondo::testing::Over;
using rondo::testing::run_communicators;
using rondo::testing::Setup;
using namespace rondo::tools;

TEST_CASE("all ranks get the same ceiling of the way between cores, for any size") {
  for (const int size : {2, 3}) {
    std::array<std::vector<double>, 3> rates;
    Setup setup;
    setup.size = size;
    setup.over = Over::shm;
    run_communicators(setup, "ceilings", [&](Communicator& communicator, int rank) {
      std::vector<std::byte> in(1'000'003), out(in.size());
      auto ceiling = make_core_ceiling(communicator, in, out, true);
      expect(ceiling->usable(), ceiling->trouble());
      for (const std::size_t bytes : {1, 8, 70'000, 1'000'003}) {
        Row row;
        row.bytes = bytes;
        rates[static_cast<std::size_t>(rank)].push_back(ceiling->measure(row));
      }
      expect(ceiling->trouble().empty(), ceiling->trouble());
    });
    for (const double rate : rates[0]) CHECK(rate > 0);
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(size); ++rank)
      CHECK(rates[rank] == rates[0]);
  }
}

TEST_CASE("buffers without room for an f32 have no ceiling of the way between cores") {
  run_communicators({}, "tiny buffers", [](Communicator& communicator, int) {
    std::array<std::byte, 3> in{}, out{};
    const auto ceiling = make_core_ceiling(communicator, in, out, true);
    expect(!ceiling->usable() && !ceiling->trouble().empty(), "it is usable");
  });
}

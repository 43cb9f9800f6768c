// SPDX-License-Identifier: Apache-2.0
//
// Out of descriptors was told as something else.
#include "catch.h"
#include "lib/needs.h"

using namespace rondo;
using Catch::Contains;

TEST_CASE("too few descriptors are told with what to set", "[descriptors]") {
  const std::size_t beyond = std::size_t{1} << 40;
  CHECK_NOTHROW(reserve_descriptors(1, beyond, "rank 0 of 2"));
  CHECK_THROWS_WITH(reserve_descriptors(beyond, 0, "rank 0 of 2 to join"),
                    Contains("rank 0 of 2 to join needs 1099511627776 open files more than") &&
                        Contains("raise it to at least") && Contains("ulimit -n"));
}

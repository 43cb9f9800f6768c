// SPDX-License-Identifier: Apache-2.0
#include "tools/traffic.h"

#include "catch.h"

using rondo::Collective;
using rondo::tools::traffic_of;

TEST_CASE("in windows every element is loaded from all inputs and stored into all outputs") {
  CHECK(traffic_of(Collective::all_reduce, 4, 100, true, true) == 2 * 4 * 100);
  CHECK(traffic_of(Collective::all_reduce, 4, 100, true, false) == 2 * 4 * 100);
  CHECK(traffic_of(Collective::reduce, 4, 100, true, false) == 4 * 100 + 100);
  CHECK(traffic_of(Collective::reduce_scatter, 4, 100, true, false) == 4 * 100 + 100);
  CHECK(traffic_of(Collective::reduce_scatter_v, 4, 100, true, true) == 4 * 100 + 100);
}

TEST_CASE("through slots inputs are copied in and results out") {
  // In: 3/4 of 4 inputs, loaded and stored. Combined: 4 loads, into the output and into the slot. Out: 3/4 of 4 outputs.
  CHECK(traffic_of(Collective::all_reduce, 4, 100, false, false) == 600 + 400 + 200 + 600);
  CHECK(traffic_of(Collective::all_reduce, 4, 100, false, true) == 600 + 400 + 200 + 600);
  // The root alone takes: 3/4 of one output.
  CHECK(traffic_of(Collective::reduce, 4, 100, false, false) == 600 + 400 + 100 + 150);
  CHECK(traffic_of(Collective::reduce_scatter, 4, 100, false, false) == 600 + 400 + 100);
}

TEST_CASE("operations that only copy") {
  CHECK(traffic_of(Collective::broadcast, 4, 100, true, true) == 3 * 200);
  CHECK(traffic_of(Collective::broadcast, 4, 100, true, false) == 4 * 200);
  CHECK(traffic_of(Collective::broadcast, 4, 100, false, true) == 200 + 3 * 200);
  CHECK(traffic_of(Collective::all_gather, 4, 100, true, true) == 4 * 150);
  CHECK(traffic_of(Collective::all_gather_v, 4, 100, false, false) == 4 * 50 + 4 * 200);
  CHECK(traffic_of(Collective::gather, 4, 100, true, true) == 150);
  CHECK(traffic_of(Collective::scatter, 4, 100, false, false) == 150 + 200);
  CHECK(traffic_of(Collective::all_to_all, 4, 100, true, false) == 4 * 200);
  CHECK(traffic_of(Collective::all_to_all, 4, 100, true, true) ==
        2 * 600);  // over its own input: not without slots
  CHECK(traffic_of(Collective::all_to_all, 4, 100, false, true) == 2 * 600);
  CHECK(traffic_of(Collective::barrier, 4, 0, false, false) == 0);
}

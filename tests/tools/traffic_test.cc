// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/operation.h"

#include "catch.h"

using rondo::Collective;
using namespace rondo::tools;

TEST_CASE("what is reduced is loaded from all inputs and stored once for each output") {
  CHECK(traffic_of(Collective::all_reduce, 4, 100, true) == 2 * 4 * 100);
  CHECK(traffic_of(Collective::all_reduce, 4, 100, false) == 2 * 4 * 100);
  CHECK(traffic_of(Collective::reduce, 4, 100, false) == 4 * 100 + 100);
  CHECK(traffic_of(Collective::reduce_scatter, 4, 100, false) == 4 * 100 + 100);
  CHECK(traffic_of(Collective::reduce_scatter_v, 4, 100, true) == 4 * 100 + 100);
}

TEST_CASE("what is copied is loaded and stored for each rank that takes it") {
  CHECK(traffic_of(Collective::broadcast, 4, 100, true) == 3 * 200);
  CHECK(traffic_of(Collective::broadcast, 4, 100, false) == 4 * 200);
  CHECK(traffic_of(Collective::all_gather, 4, 100, true) == 4 * 150);
  CHECK(traffic_of(Collective::all_gather_v, 4, 100, false) == 4 * 200);
  CHECK(traffic_of(Collective::gather, 4, 100, true) == 150);
  CHECK(traffic_of(Collective::scatter, 4, 100, false) == 150 + 50);
  CHECK(traffic_of(Collective::all_to_all, 4, 100, false) == 4 * 200);
  CHECK(traffic_of(Collective::all_to_all, 4, 100, true) == 4 * 150);
  CHECK(traffic_of(Collective::barrier, 4, 0, false) == 0);
}

// As nccl-tests have them.
TEST_CASE("the factors of the bus bandwidth") {
  CHECK(bus_factor(Collective::all_reduce, 4) == 1.5);
  for (const Collective one : {Collective::all_gather, Collective::all_gather_v,
                               Collective::reduce_scatter, Collective::reduce_scatter_v,
                               Collective::all_to_all, Collective::gather, Collective::scatter})
    CHECK(bus_factor(one, 4) == 0.75);
  CHECK(bus_factor(Collective::broadcast, 4) == 1);
  CHECK(bus_factor(Collective::reduce, 4) == 1);
  CHECK(bus_factor(Collective::barrier, 4) == 0);
}

TEST_CASE("a message is loaded and stored once, and crosses one link") {
  CHECK(traffic_of(Operation::sendrecv(), 4, 100, false) == 4 * 200);
  CHECK(traffic_of(Operation::one_way(), 2, 100, false) == 200);
  CHECK(traffic_of(Operation::bandwidth(), 2, 100, false) == 200);
  CHECK(traffic_of(Operation::bibandwidth(), 2, 100, false) == 2 * 200);
  CHECK(traffic_of(Operation::rate(), 6, 100, false) == 3 * 200);
  CHECK(bus_factor(Operation::sendrecv(), 4) == 1);
  CHECK(bus_factor(Operation::rate(), 4) == 1);
  CHECK(bus_factor(Operation::one_way(), 2) == 1);
}

// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/measure.h"

#include <algorithm>
#include <cstddef>

#include "catch.h"

using rondo::Communicator;
using namespace rondo::tools;

namespace {

// One rank alone, with what a measurement needs.
struct Alone {
  Communicator communicator = [] {
    rondo::Options options;
    options.rank = 0;
    options.size = 1;
    return Communicator::connect(options);
  }();
  Clocks clocks{communicator};
  Stop stop;
};

// Measures with a hook that spoils the input before every iteration. Returns whether the last
// iteration wrote all of it again.
bool written_anew(Conditions conditions) {
  conditions.largest = 4096;
  conditions.iterations = 3;
  Alone alone;
  Measurement* running = nullptr;
  Measurement measurement(
      alone.communicator, {conditions, alone.stop, alone.clocks}, conditions.in_a_row,
      [&](std::uint64_t, std::uint64_t) { std::ranges::fill(running->in(), std::byte{0x7f}); });
  running = &measurement;
  measurement.choose(rondo::Collective::all_reduce, {});
  CHECK(measurement.measure(4096, false).wrong == 0);
  // Small integers have no four such bytes in a row.
  const auto in = measurement.in();
  return std::search_n(in.begin(), in.end(), 4, std::byte{0x7f}) == in.end();
}

}  // namespace

TEST_CASE("inputs are written before every iteration where that is asked for or checked") {
  Conditions conditions;
  CHECK(written_anew(conditions));
  conditions.in_a_row = 3;
  conditions.check = false;
  CHECK_FALSE(written_anew(conditions));
  conditions.fresh = true;
  CHECK(written_anew(conditions));
}

TEST_CASE("a row that is ended early has what was measured") {
  Conditions conditions;
  conditions.largest = 64;
  conditions.iterations = 1'000'000'000;
  Alone alone;
  Measurement measurement(alone.communicator, {conditions, alone.stop, alone.clocks}, 1,
                          [&](std::uint64_t iteration, std::uint64_t) {
                            if (iteration == 10) alone.stop.ask();
                          });
  measurement.choose(rondo::Collective::all_reduce, {});
  const Row row = measurement.measure(64, false);
  CHECK(row.cut_short);
  CHECK(row.iterations > 10);
  CHECK(row.time.min_us > 0);
  CHECK(row.time.max_us >= row.time.p99_us);
  // The next row of a run that ends has one iteration.
  CHECK(measurement.measure(64, false).iterations == 1);
}

TEST_CASE("a number of iterations can be asked for") {
  Conditions conditions;
  conditions.largest = 64;
  conditions.keep_times = true;
  Alone alone;
  Measurement measurement(alone.communicator, {conditions, alone.stop, alone.clocks}, 1,
                          [](std::uint64_t, std::uint64_t) {});
  measurement.choose(rondo::Collective::all_reduce, {});
  const Row row = measurement.measure(64, false, 17);
  CHECK(row.iterations == 17);
  CHECK(row.times_us.size() == 17);
  CHECK_FALSE(row.cut_short);
}

TEST_CASE("a row that is far above the sockets has no percentage") {
  Row row;
  row.bytes = 4096;
  row.time.p50_us = 1;
  row.busbw = 1.4;
  row.ceiling = 1;
  for (const auto of : {CeilingOf::sockets, CeilingOf::cores}) {
    row.ceiling_of = of;
    CHECK(percent_of_ceiling(row) == Approx(140));
  }
  row.busbw = 4.04;
  CHECK(percent_of_ceiling(row) == Approx(404));
  CHECK_FALSE(exceeds_sockets(row));
  row.ceiling_of = CeilingOf::sockets;
  CHECK(percent_of_ceiling(row) == 0);
  CHECK(exceeds_sockets(row));
}

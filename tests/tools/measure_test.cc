// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/measure.h"

#include <algorithm>
#include <cstddef>

#include "catch.h"

using rondo::Communicator;
using rondo::tools::Clocks;
using rondo::tools::Conditions;
using rondo::tools::Iterations;
using rondo::tools::Measurement;
using rondo::tools::Stop;

namespace {

// Measures with a hook that spoils the input before every iteration. Returns whether the last
// iteration wrote all of it again.
bool written_anew(Conditions conditions) {
  conditions.largest = 4096;
  conditions.iterations = 3;
  rondo::Options options;
  options.rank = 0;
  options.size = 1;
  Communicator communicator = Communicator::connect(options);
  const Stop stop;
  Clocks clocks(communicator);
  Measurement* running = nullptr;
  Measurement measurement(
      communicator, Iterations::Context{conditions, stop, clocks}, conditions.in_a_row,
      [&](std::uint64_t, std::uint64_t) { std::ranges::fill(running->in(), std::byte{0x7f}); });
  running = &measurement;
  measurement.choose(rondo::Collective::all_reduce, rondo::DType::f32, rondo::ReduceOp::sum, 0);
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

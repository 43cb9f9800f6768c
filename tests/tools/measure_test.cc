// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/measure.h"

#include <algorithm>
#include <cstddef>

#include "catch.h"

using rondo::Communicator;
using rondo::tools::BenchOptions;
using rondo::tools::Measurement;

namespace {

// Measures with a hook that spoils the input before every iteration. Returns whether the last
// iteration wrote all of it again.
bool written_anew(BenchOptions options) {
  options.types = {rondo::DType::f32};
  options.ops = {rondo::ReduceOp::sum};
  options.roots = {0};
  options.sizes = {4096};
  options.iterations = 3;
  options.connect.rank = 0;
  options.connect.size = 1;
  Communicator communicator = Communicator::connect(options.connect);
  Measurement* running = nullptr;
  Measurement measurement(communicator, options, [&](std::uint64_t, std::uint64_t) {
    std::ranges::fill(running->in(), std::byte{0x7f});
  });
  running = &measurement;
  measurement.choose(rondo::DType::f32, rondo::ReduceOp::sum, 0);
  CHECK(measurement.measure(4096, false).wrong == 0);
  // Small integers have no four such bytes in a row.
  const auto in = measurement.in();
  return std::search_n(in.begin(), in.end(), 4, std::byte{0x7f}) == in.end();
}

}  // namespace

TEST_CASE("inputs are written before every iteration where that is asked for or checked") {
  BenchOptions options;
  CHECK(written_anew(options));
  options.in_a_row = 3;
  options.check = false;
  CHECK_FALSE(written_anew(options));
  options.fresh = true;
  CHECK(written_anew(options));
}

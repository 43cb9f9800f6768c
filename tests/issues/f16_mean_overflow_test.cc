// SPDX-License-Identifier: Apache-2.0
// A mean that its type can hold is right although the sum before it would overflow. This holds on
// every transport, with every algorithm, and with reproducible results.
#include <rondo/convert.h>

#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "collectives/schedules/schedule.h"
#include "support/effort.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

constexpr int ranks = 8;

std::vector<std::byte> encoded(const std::vector<float>& values, DType type) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  convert(values.data(), DType::f32, bytes.data(), type, values.size());
  return bytes;
}

std::vector<float> decoded(const std::vector<std::byte>& bytes, DType type) {
  std::vector<float> values(bytes.size() / size_of(type));
  convert(bytes.data(), type, values.data(), DType::f32, values.size());
  return values;
}

// The value of every input element, and so of the mean: at least 0.3 of the largest value of the
// type.
float value_of(DType type) {
  if (type == DType::f16) return 20'000;
  return type == DType::f8e4m3 ? 256 : 32'768;
}

void expect_all(const std::vector<float>& values, float wanted, const std::string& what) {
  for (const float value : values)
    expect(std::abs(value - wanted) <= wanted / 500, [&] {
      return what + ": " + std::to_string(value) + " instead of " + std::to_string(wanted);
    });
}

void check_means(Communicator& c, DType type, std::size_t count) {
  const float value = value_of(type);
  const std::vector<std::byte> in = encoded(std::vector<float>(count, value), type);
  const Buffer from{const_cast<std::byte*>(in.data()), count, type};
  std::vector<std::byte> out(in.size());
  const Buffer to{out.data(), count, type};
  const std::string what =
      std::string(name_of(type)) + ", " + std::to_string(count) + " elements, ";
  c.all_reduce(from, to, ReduceOp::mean).wait();
  expect_all(decoded(out, type), value, what + "all_reduce");
  OpOptions eighth;
  eighth.scale = 0.125;
  c.all_reduce(from, to, ReduceOp::sum, eighth).wait();
  expect_all(decoded(out, type), value, what + "sum times 1/8");
  c.reduce(from, to, ReduceOp::mean, 1).wait();
  if (c.rank() == 1) expect_all(decoded(out, type), value, what + "reduce");
  std::vector<std::byte> block(in.size() / ranks);
  c.reduce_scatter(from, {block.data(), count / ranks, type}, ReduceOp::mean).wait();
  expect_all(decoded(block, type), value, what + "reduce_scatter");
}

}  // namespace

TEST_CASE(
    "the mean of short floats does not overflow on the way, over any transport, by any algorithm") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const bool reproducible = GENERATE(false, true);
  Setup setup;
  setup.over = over;
  setup.size = ranks;
  setup.hosts = {0, 0, 0, 1, 1, 1, 1, 2};
  setup.options.reproducible = reproducible;
  std::vector<std::string> algorithms{""};
  if (!reproducible && over == Over::mem)
    for (int i = 0; i < schedules::algorithm_count; ++i)
      if (schedules::supports(static_cast<schedules::Algorithm>(i), Collective::all_reduce))
        algorithms.emplace_back(schedules::name_of(static_cast<schedules::Algorithm>(i)));
  for (const std::string& algorithm : algorithms) {
    setup.options.algorithm = algorithm;
    run_communicators(setup, "means by " + (algorithm.empty() ? "the planner" : algorithm),
                      [&](Communicator& c, int) {
                        for (const DType type : {DType::f16, DType::f8e4m3, DType::f8e5m2})
                          for (const std::size_t count :
                               {std::size_t{40}, std::size_t{whole_set() ? 80'000u : 5'000u}})
                            check_means(c, type, count);
                      });
  }
}

}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
// Calls that cannot be are refused at once, with what was given and what is possible.
// Wrong calls are refused at once, with the given value and what is possible.
#include "lib/arguments.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "catch.h"

namespace rondo {
namespace {

using Catch::Matchers::Contains;

// Rank 1 of 3, the root, with room for every call below.
struct Caller {
  std::array<float, 64> in{}, out{};
  OpOptions options;
  std::vector<std::size_t> counts;

  lib::Arguments call(Collective operation, std::size_t in_count, std::size_t out_count) {
    return {1,
            3,
            operation,
            {in.data(), in_count, DType::f32},
            {out.data(), out_count, DType::f32},
            ReduceOp::sum,
            1,
            &options,
            counts};
  }
};

std::string refusal(const lib::Arguments& arguments) {
  try {
    lib::check_arguments(arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("counts of operations on blocks") {
  Caller caller;
  CHECK(refusal(caller.call(Collective::gather, 4, 12)) == "");
  CHECK(refusal(caller.call(Collective::scatter, 12, 4)) == "");
  CHECK(refusal(caller.call(Collective::all_to_all, 12, 12)) == "");
  CHECK(refusal(caller.call(Collective::all_to_all, 0, 0)) == "");
  CHECK_THAT(refusal(caller.call(Collective::gather, 4, 13)),
             Contains("gather on rank 1: out.count is 13, it must be size * in.count = 3 * 4"));
  CHECK_THAT(refusal(caller.call(Collective::scatter, 11, 4)),
             Contains("in.count is 11, it must be size * out.count = 3 * 4"));
  CHECK_THAT(refusal(caller.call(Collective::all_to_all, 12, 9)),
             Contains("in.count is 12 but out.count is 9: they must be equal"));
  CHECK_THAT(refusal(caller.call(Collective::all_to_all, 10, 10)),
             Contains("in.count is 10, it must be a multiple of the 3 ranks"));
}

TEST_CASE("counts for each rank") {
  Caller caller;
  caller.counts = {5, 0, 7};
  CHECK(refusal(caller.call(Collective::all_gather_v, 0, 12)) == "");
  CHECK(refusal(caller.call(Collective::reduce_scatter_v, 12, 0)) == "");
  CHECK_THAT(refusal(caller.call(Collective::all_gather_v, 1, 12)),
             Contains("in.count is 1, it must be the count of this rank, 0"));
  CHECK_THAT(refusal(caller.call(Collective::all_gather_v, 0, 11)), Contains("out.count is 11"));
  CHECK_THAT(refusal(caller.call(Collective::reduce_scatter_v, 13, 0)), Contains("in.count is 13"));
  CHECK_THAT(refusal(caller.call(Collective::reduce_scatter_v, 12, 5)), Contains("out.count is 5"));
  caller.counts = {6, 6};
  CHECK_THAT(refusal(caller.call(Collective::all_gather_v, 6, 12)),
             Contains("there are 2 counts, there must be one for each of the 3 ranks"));
  caller.counts = {};
  CHECK_THAT(refusal(caller.call(Collective::reduce_scatter_v, 0, 0)),
             Contains("there are 0 counts"));
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  caller.counts = {most / 2, 1, most / 2};
  CHECK_THAT(refusal(caller.call(Collective::all_gather_v, 1, 0)),
             Contains("more f32 elements than memory"));
}

TEST_CASE("roots") {
  Caller caller;
  for (const Collective operation : {Collective::gather, Collective::scatter})
    for (const int root : {-1, 3}) {
      lib::Arguments arguments = operation == Collective::gather ? caller.call(operation, 4, 12)
                                                                 : caller.call(operation, 12, 4);
      arguments.root = root;
      CHECK_THAT(refusal(arguments), Contains("it must be from 0 to 2"));
    }
}

TEST_CASE("what is ignored on a rank is not looked at") {
  Caller caller;
  lib::Arguments gather = caller.call(Collective::gather, 4, 999);
  gather.root = 0;
  gather.out = {nullptr, 999, DType::f32};
  CHECK(refusal(gather) == "");
  lib::Arguments scatter = caller.call(Collective::scatter, 999, 4);
  scatter.root = 0;
  scatter.in = {nullptr, 999, static_cast<DType>(77)};
  CHECK(refusal(scatter) == "");
}

TEST_CASE("in place, and not quite") {
  Caller caller;
  const auto at = [&](Collective operation, std::size_t in_count, std::size_t out_count,
                      std::size_t in_offset, std::size_t out_offset) {
    lib::Arguments arguments = caller.call(operation, in_count, out_count);
    arguments.in.data = caller.in.data() + in_offset;
    arguments.out.data = caller.in.data() + out_offset;
    return refusal(arguments);
  };
  CHECK(at(Collective::gather, 4, 12, 4, 0) == "");
  CHECK_THAT(at(Collective::gather, 4, 12, 0, 0),
             Contains("in.data == out.data + rank * in.count"));
  CHECK(at(Collective::scatter, 12, 4, 0, 4) == "");
  CHECK_THAT(at(Collective::scatter, 12, 4, 0, 5),
             Contains("out.data == in.data + rank * out.count"));
  CHECK(at(Collective::all_to_all, 12, 12, 0, 0) == "");
  CHECK_THAT(at(Collective::all_to_all, 12, 12, 0, 4), Contains("out.data == in.data"));
  caller.counts = {5, 2, 4};
  CHECK(at(Collective::all_gather_v, 2, 11, 5, 0) == "");
  CHECK_THAT(at(Collective::all_gather_v, 2, 11, 2, 0),
             Contains("the counts of the ranks before this one"));
  CHECK(at(Collective::reduce_scatter_v, 11, 2, 0, 5) == "");
  CHECK_THAT(at(Collective::reduce_scatter_v, 11, 2, 0, 4),
             Contains("the counts of the ranks before"));
}

TEST_CASE("a scale factor is for reductions, with counts too") {
  Caller caller;
  caller.options.scale = 0.5;
  CHECK_THAT(refusal(caller.call(Collective::all_to_all, 12, 12)), Contains("reductions only"));
  caller.counts = {5, 0, 7};
  CHECK(refusal(caller.call(Collective::reduce_scatter_v, 12, 0)) == "");
  CHECK_THAT(refusal(caller.call(Collective::all_gather_v, 0, 12)), Contains("reductions only"));
}

TEST_CASE("an input scale is for sums and means of floats") {
  Caller caller;
  const auto answer = [&](double scale, DType type = DType::f32, ReduceOp op = ReduceOp::sum,
                          Collective operation = Collective::all_reduce) {
    caller.options.input_scale = scale;
    lib::Arguments a = caller.call(operation, 6, 6);
    a.in.type = a.out.type = type;
    a.op = op;
    return refusal(a);
  };
  for (const double scale : {0.0, 0.5, -1.0, 3.4e38, 1.2e-38}) CHECK(answer(scale) == "");
  CHECK(answer(0.5, DType::bf16, ReduceOp::mean) == "");
  CHECK(answer(1e300, DType::f64) == "");
  CHECK_THAT(answer(0.5, DType::f32, ReduceOp::sum, Collective::all_to_all),
             Contains("all_to_all on rank 1: an input scale applies to reductions only"));
  CHECK_THAT(answer(0.5, DType::f32, ReduceOp::sum, Collective::barrier),
             Contains("an input scale applies to reductions only"));
  CHECK_THAT(answer(0.5, DType::i32), Contains("needs a floating-point type, not i32"));
  for (const ReduceOp op : {ReduceOp::product, ReduceOp::min, ReduceOp::max})
    CHECK_THAT(answer(0.5, DType::f32, op), Contains("applies to sum and mean, not to "));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double scale : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THAT(answer(scale, DType::f64), Contains("it must be finite"));
    CHECK_THAT(answer(scale, DType::f16), Contains("it must be 0, or from 1.18e-38 to 3.4e38"));
  }
  for (const double scale : {1e300, 1e-300})
    CHECK_THAT(answer(scale), Contains("it must be 0, or from 1.18e-38 to 3.4e38 in magnitude"));
}

}  // namespace
}  // namespace rondo

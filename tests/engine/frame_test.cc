// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/frame.h"

#include <limits>

#include "catch.h"

using namespace rondo;

namespace {

operation::Frame example() {
  operation::Frame frame;
  frame.signature = {Collective::reduce,
                     DType::bf16,
                     ReduceOp::max,
                     schedules::Algorithm::tree,
                     3,
                     std::uint64_t{5} << 32,
                     0.125,
                     (std::uint64_t{77} << 40) + 1,
                     true};
  frame.number = std::numeric_limits<std::uint64_t>::max();
  frame.segment = 65'535;
  frame.frame = 9;
  frame.checksum = 0xdeadbeef;
  return frame;
}

}  // namespace

TEST_CASE("a frame header keeps every field") {
  const auto back = operation::decode(operation::encode(example()));
  REQUIRE(back.has_value());
  CHECK(*back == example());
}

TEST_CASE("a header with any one bit flipped is refused") {
  const transports::HeaderBytes right = operation::encode(example());
  for (std::size_t bit = 0; bit < right.size() * 8; ++bit) {
    transports::HeaderBytes wrong = right;
    wrong[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    INFO("bit " << bit);
    CHECK_FALSE(operation::decode(wrong).has_value());
  }
}

TEST_CASE("a sealed header with a value outside its enum is refused") {
  for (const std::size_t field : {4, 5, 6, 7}) {
    transports::HeaderBytes bytes = operation::encode(example());
    bytes[field] = std::byte{200};
    operation::seal(bytes);
    INFO("byte " << field);
    CHECK_FALSE(operation::decode(bytes).has_value());
  }
}

TEST_CASE("only sums and means of floats carry a scale of the input, and none that is not finite") {
  const auto decodes = [](DType type, ReduceOp op, double scale,
                          Collective operation = Collective::reduce) {
    operation::Frame frame = example();
    frame.signature.operation = operation;
    frame.signature.type = type;
    frame.signature.op = op;
    frame.input_scale = scale;
    const auto back = operation::decode(operation::encode(frame));
    return back && *back == frame;
  };
  for (const double scale : {1.0, 0.1, -3e38, 0.0, 1.2e-38}) {
    CHECK(decodes(DType::bf16, ReduceOp::sum, scale));
    CHECK(decodes(DType::f64, ReduceOp::mean, scale));
  }
  CHECK(decodes(DType::f64, ReduceOp::sum, 1e-300));
  CHECK(decodes(DType::bf16, ReduceOp::max, 1));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double scale : {1e-300, 1e300, infinity, -infinity, std::nan("")})
    CHECK_FALSE(decodes(DType::f32, ReduceOp::sum, scale));
  CHECK_FALSE(decodes(DType::f64, ReduceOp::sum, infinity));
  CHECK_FALSE(decodes(DType::bf16, ReduceOp::max, 0.5));
  CHECK_FALSE(decodes(DType::bf16, ReduceOp::product, 0.5));
  CHECK_FALSE(decodes(DType::i32, ReduceOp::sum, 0.5));
  CHECK_FALSE(decodes(DType::f32, ReduceOp::sum, 0.5, Collective::broadcast));
}

TEST_CASE("calls are described the way a user made them") {
  schedules::Signature s{Collective::all_reduce,
                         DType::f32,
                         ReduceOp::sum,
                         schedules::Algorithm::ring,
                         0,
                         16 << 20,
                         1,
                         0};
  CHECK(schedules::describe_call(s, 41, Priority::bulk, {}, "tcp") ==
        "all_reduce #41 (64 MiB f32 sum, ring over tcp)");
  s.count = 10;
  s.scale = 0.5;
  CHECK(schedules::describe_call(s, 7, Priority::urgent, "layer 3") ==
        "urgent all_reduce #7 \"layer 3\" (10 f32 sum times 0.5)");
  s.operation = Collective::broadcast;
  s.root = 2;
  CHECK(schedules::describe_call(s, 1, Priority::bulk) == "broadcast #1 (10 f32, root 2)");
  s.operation = Collective::barrier;
  CHECK(schedules::describe_call(s, 2, Priority::bulk) == "barrier #2 (no data)");
}

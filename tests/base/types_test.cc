// SPDX-License-Identifier: Apache-2.0
#include <rondo/types.h>

#include <vector>

#include "catch.h"

using namespace rondo;

TEST_CASE("every type has a size, a name and a way back from it", "[types]") {
  const std::vector<std::size_t> bytes{8, 4, 2, 2, 1, 1, 8, 8, 4, 4, 1, 1, 2, 2};
  for (int i = 0; i < dtype_count; ++i) {
    const auto type = static_cast<DType>(i);
    CHECK(is_valid(type));
    CHECK(size_of(type) == bytes[static_cast<std::size_t>(i)]);
    CHECK(is_integer(type) == (type >= DType::i64));
    CHECK(parse_dtype(name_of(type)) == type);
  }
  for (int i = 0; i < reduce_op_count; ++i) {
    CHECK(is_valid(static_cast<ReduceOp>(i)));
    CHECK(parse_reduce_op(name_of(static_cast<ReduceOp>(i))) == static_cast<ReduceOp>(i));
  }
  for (int i = 0; i < collective_count; ++i)
    CHECK(parse_collective(name_of(static_cast<Collective>(i))) == static_cast<Collective>(i));
}

TEST_CASE("values outside the enums", "[types]") {
  CHECK_FALSE(is_valid(static_cast<DType>(dtype_count)));
  CHECK_FALSE(is_valid(static_cast<ReduceOp>(255)));
  CHECK(name_of(static_cast<DType>(dtype_count)) == "unknown");
  CHECK(name_of(static_cast<ReduceOp>(reduce_op_count)) == "unknown");
  CHECK(name_of(static_cast<Collective>(255)) == "unknown");
  CHECK(size_of(static_cast<DType>(200)) == 0);
  CHECK_FALSE(is_integer(static_cast<DType>(200)));
  CHECK_FALSE(supports(static_cast<DType>(200), ReduceOp::sum));
  CHECK_FALSE(supports(DType::f32, static_cast<ReduceOp>(200)));
}

TEST_CASE("names and synonyms", "[types]") {
  CHECK(name_of(DType::bf16) == "bf16");
  CHECK(name_of(ReduceOp::bit_and) == "bit_and");
  CHECK(name_of(Collective::all_reduce) == "all_reduce");
  CHECK(parse_dtype("float") == DType::f32);
  CHECK(parse_dtype("half") == DType::f16);
  CHECK(parse_dtype("bfloat16") == DType::bf16);
  CHECK(parse_dtype("uint8") == DType::u8);
  CHECK(parse_reduce_op("prod") == ReduceOp::product);
  CHECK(parse_reduce_op("avg") == ReduceOp::mean);
  CHECK(parse_collective("allreduce") == Collective::all_reduce);
  CHECK(parse_collective("alltoallv") == Collective::all_to_all_v);
  CHECK(name_of(Collective::receive) == "receive");
  for (const char* text : {"", "F32", "f32 ", "unknown", "f"}) {
    CHECK_FALSE(parse_dtype(text).has_value());
    CHECK_FALSE(parse_reduce_op(text).has_value());
    CHECK_FALSE(parse_collective(text).has_value());
  }
}

TEST_CASE("bit operations are for integers only", "[types]") {
  for (const ReduceOp op : {ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor}) {
    CHECK_FALSE(supports(DType::f32, op));
    CHECK_FALSE(supports(DType::f8e5m2, op));
    CHECK(supports(DType::u8, op));
    CHECK(supports(DType::i64, op));
  }
  CHECK(supports(DType::bf16, ReduceOp::mean));
  for (int type = static_cast<int>(DType::i64); type < dtype_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op)
      CHECK(supports(static_cast<DType>(type), static_cast<ReduceOp>(op)));
}

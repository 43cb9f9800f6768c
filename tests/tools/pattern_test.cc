// SPDX-License-Identifier: Apache-2.0
//
// Compares the inputs of rondo bench with the scalar kernels of the library. They must give the
// expected table in different orders of the ranks, rounded at every hop or only at the end. A sum
// that wraps on its way to a mean of integers does not give it.
#include "tools/measure/pattern.h"

#include <vector>

#include "catch.h"
#include "collectives/kernels/reduce.h"

using namespace rondo;
using rondo::tools::Call;
using rondo::tools::Pattern;

namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t count = 40'000;  // more than two periods

Bytes input_of(Call call, int rank, std::uint64_t iteration) {
  call.rank = rank;
  Bytes input(count * size_of(call.type));
  Pattern(call).fill_input(input.data(), 0, count, iteration);
  return input;
}

// Combines the inputs of the ranks one by one from `first` on, and rounds each time.
Bytes chain(const Call& call, const std::vector<Bytes>& inputs, std::size_t first) {
  const kernels::ReduceFunction reduce =
      kernels::find_reduce(call.type, call.op, base::Isa::scalar);
  REQUIRE(reduce != nullptr);
  Bytes result = inputs[first];
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const std::byte* in[] = {result.data(), inputs[(first + i) % inputs.size()].data()};
    kernels::Finish finish;
    if (i + 1 == inputs.size() && call.op == ReduceOp::mean) finish.divide = call.size;
    reduce(result.data(), in, 2, count, finish);
  }
  return result;
}

Bytes at_once(const Call& call, const std::vector<Bytes>& inputs) {
  std::vector<const std::byte*> in;
  for (const Bytes& input : inputs) in.push_back(input.data());
  Bytes result(inputs[0].size());
  kernels::Finish finish;
  if (call.op == ReduceOp::mean) finish.divide = call.size;
  kernels::find_reduce(call.type, call.op, base::Isa::scalar)(result.data(), in.data(), in.size(),
                                                              count, finish);
  return result;
}

}  // namespace

TEST_CASE("expected results are exact for every type, op and order", "[one-thread]") {
  for (int t = 0; t < dtype_count; ++t)
    for (int o = 0; o < reduce_op_count; ++o)
      for (const int size : {2, 3, 5, 33}) {
        const Call call{
            Collective::all_reduce, static_cast<DType>(t), static_cast<ReduceOp>(o), 0, 0, size};
        if (!supports(call.type, call.op)) continue;
        // Many ranks take long, and only matter where the range of the type is small.
        if (size == 33 && (size_of(call.type) > 1 || o > static_cast<int>(ReduceOp::product)))
          continue;
        INFO(name_of(call.type) << " " << name_of(call.op) << " over " << size);
        std::vector<Bytes> inputs;
        for (int rank = 0; rank < size; ++rank) inputs.push_back(input_of(call, rank, 5));
        const Pattern pattern(call);
        CHECK(pattern.count_wrong(at_once(call, inputs).data(), 0, count, 5, 0) == 0);
        const bool wraps = is_integer(call.type) && call.op == ReduceOp::mean && size > 2;
        for (const std::size_t first : {std::size_t{0}, inputs.size() - 1}) {
          const auto wrong = pattern.count_wrong(chain(call, inputs, first).data(), 0, count, 5, 0);
          CHECK((wraps ? wrong > count / 10 : wrong == 0));
        }
      }
}

TEST_CASE("results of other iterations, places and ranks are wrong, and so is a missing rank") {
  const Call call{Collective::all_reduce, DType::f32, ReduceOp::sum, 0, 0, 4};
  const Pattern pattern(call);
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < 4; ++rank) inputs.push_back(input_of(call, rank, 1));
  Bytes result = at_once(call, inputs);
  CHECK(pattern.count_wrong(result.data(), 0, count, 1, 0) == 0);
  CHECK(pattern.count_wrong(result.data(), 0, count, 2, 0) > count * 9 / 10);
  CHECK(pattern.count_wrong(result.data(), 1, count, 1, 0) > count * 9 / 10);
  CHECK(pattern.count_wrong(result.data() + 4096 * 4, 4096, count - 4096, 1, 0) == 0);
  result[4 * 777] ^= std::byte{1};
  CHECK(pattern.count_wrong(result.data(), 0, count, 1, 0) == 1);
  inputs.pop_back();
  CHECK(pattern.count_wrong(at_once(call, inputs).data(), 0, count, 1, 0) > count * 9 / 10);
}

TEST_CASE("every poisoned element is wrong") {
  for (int t = 0; t < dtype_count; ++t)
    for (const Collective operation :
         {Collective::all_reduce, Collective::broadcast, Collective::all_gather,
          Collective::scatter, Collective::all_to_all}) {
      const Pattern pattern(Call{operation, static_cast<DType>(t), ReduceOp::sum, 1, 0, 3});
      const bool several =
          operation == Collective::all_gather || operation == Collective::all_to_all;
      const int block = several ? 2 : 0;
      Bytes buffer(count * size_of(static_cast<DType>(t)));
      pattern.poison(buffer.data(), 0, count, 9, block);
      CHECK(pattern.count_wrong(buffer.data(), 0, count, 9, block) == count);
    }
}

TEST_CASE("copying operations expect the bytes of the rank that they come from") {
  const Call gather{Collective::all_gather, DType::f16, ReduceOp::sum, 0, 0, 3};
  CHECK(Pattern(gather).count_wrong(input_of(gather, 2, 4).data(), 0, count, 4, 2) == 0);
  CHECK(Pattern(gather).count_wrong(input_of(gather, 1, 4).data(), 0, count, 4, 2) >
        count * 9 / 10);
  const Call exchange{Collective::all_to_all, DType::i32, ReduceOp::sum, 0, 1, 3};
  CHECK(Pattern(exchange).count_wrong(input_of(exchange, 2, 4).data(), 0, count, 4, 2) == 0);
  const Call scatter{Collective::scatter, DType::u8, ReduceOp::sum, 2, 0, 3};
  CHECK(Pattern(scatter).count_wrong(input_of(scatter, 2, 4).data(), 0, count, 4, 0) == 0);
  const Call broadcast{Collective::broadcast, DType::u8, ReduceOp::sum, 1, 0, 3};
  CHECK(Pattern(broadcast).count_wrong(input_of(broadcast, 1, 4).data(), 0, count, 4, 0) == 0);
}

TEST_CASE("small floats are encoded to nearest even, subnormals too") {
  using rondo::tools::encode_float;
  CHECK(encode_float(DType::f32, -1.5) == 0xBFC00000);
  CHECK(encode_float(DType::f16, 1.0) == 0x3C00);
  CHECK(encode_float(DType::f16, 2049.0) ==
        0x6800);  // halfway between 2048 and 2050: rounds to even
  CHECK(encode_float(DType::f16, 2051.0) == 0x6802);
  CHECK(encode_float(DType::f16, 5.9604644775390625e-8) == 0x0001);
  CHECK(encode_float(DType::bf16, -2.0) == 0xC000);
  CHECK(encode_float(DType::f8e4m3, 448.0) == 0x7E);
  CHECK(encode_float(DType::f8e4m3, 0.001953125) == 0x01);
  CHECK(encode_float(DType::f8e5m2, 1.0) == 0x3C);
  CHECK(encode_float(DType::f8e5m2, 1.0 / 65536) == 0x01);
  CHECK(encode_float(DType::f8e5m2, 0.0) == 0);
}

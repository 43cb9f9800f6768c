// SPDX-License-Identifier: Apache-2.0
//
// buffer_of took only std::span of eight types: no const input, no long long, std::byte or 16-bit
// types, no container.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/communicator.h>

#include "catch.h"
#include "support/ranks.h"

using namespace rondo;
using Catch::Contains;
using rondo::testing::expect;
using rondo::testing::run_communicators;
using rondo::testing::Setup;

namespace {
struct Half {
  std::uint16_t bits = 0;
};
}  // namespace
template <>
struct rondo::DTypeOf<Half> {
  static constexpr DType value = DType::f16;
};

TEST_CASE("buffer_of takes containers of every type that has a width", "[issues][types]") {
  const auto type = [](const auto& values) { return buffer_of(values).type; };
  CHECK(type(std::vector<float>(1)) == DType::f32);
  CHECK(type(std::vector<double>(1)) == DType::f64);
  CHECK(type(std::vector<long>(1)) == (sizeof(long) == 8 ? DType::i64 : DType::i32));
  CHECK(type(std::vector<long long>(1)) == DType::i64);
  CHECK(type(std::vector<unsigned long long>(1)) == DType::u64);
  CHECK(type(std::vector<int>(1)) == DType::i32);
  CHECK(type(std::vector<unsigned>(1)) == DType::u32);
  CHECK(type(std::vector<std::int8_t>(1)) == DType::i8);
  CHECK(type(std::vector<std::uint8_t>(1)) == DType::u8);
  CHECK(type(std::vector<std::byte>(1)) == DType::u8);
  CHECK(type(std::string("a")) == DType::u8);
  CHECK(type(std::vector<std::uint16_t>(1)) == DType::u16);
  CHECK(type(std::vector<std::int16_t>(1)) == DType::i16);
  CHECK(type(std::vector<Half>(1)) == DType::f16);

  std::vector<float> vector(3);
  const std::vector<float>& constant = vector;
  std::array<int, 4> array{};
  double plain[5] = {};
  CHECK((buffer_of(vector).data == vector.data() && buffer_of(vector).count == 3));
  CHECK((buffer_of(constant).data == vector.data() && buffer_of(constant).count == 3));
  CHECK((buffer_of(array).data == array.data() && buffer_of(array).count == 4));
  CHECK((buffer_of(plain).data == plain && buffer_of(plain).count == 5));
  CHECK((buffer_of(std::span(vector)).data == vector.data()));
  CHECK((buffer_of(std::span<const float>(vector).subspan(1)).data == vector.data() + 1));
  CHECK((buffer_of(std::span<float, 3>(vector)).count == 3));
}

TEST_CASE("integers of 16 bits move with every bit, and can be summed", "[issues][types]") {
  for (const auto over :
       {rondo::testing::Over::mem, rondo::testing::Over::tcp, rondo::testing::Over::shm}) {
    Setup setup;
    setup.size = 3;
    setup.over = over;
    run_communicators(setup, "u16", [](Communicator& communicator, int rank) {
      const std::vector<std::uint16_t> in(1000,
                                          static_cast<std::uint16_t>(0x7c01 + rank));  // NaN as f16
      std::vector<std::uint16_t> out(3000);
      communicator.all_gather(buffer_of(in), buffer_of(out)).wait();
      for (std::size_t i = 0; i < out.size(); ++i)
        expect(out[i] == 0x7c01 + i / 1000, "all_gather changed bits");
      std::vector<std::uint16_t> root(1000, static_cast<std::uint16_t>(rank == 1 ? 0xffff : 0));
      communicator.broadcast(buffer_of(root), buffer_of(root), 1).wait();
      expect(root == std::vector<std::uint16_t>(1000, 0xffff), "broadcast changed bits");
      if (rank == 0) communicator.send(buffer_of(in), 1).wait();
      if (rank == 1) communicator.receive(buffer_of(root), 0).wait();
      expect(rank != 1 || root == std::vector<std::uint16_t>(1000, 0x7c01),
             "a message changed bits");
      std::vector<std::int16_t> sum(1000, static_cast<std::int16_t>(rank - 2));
      communicator.all_reduce(buffer_of(sum), buffer_of(sum), ReduceOp::sum).wait();
      expect(sum == std::vector<std::int16_t>(1000, -3), "another sum");
      communicator.barrier().wait();
    });
  }
  CHECK(parse_dtype("u16") == DType::u16);
  CHECK(parse_dtype("int16") == DType::i16);
  CHECK(size_of(DType::u16) == 2);
}

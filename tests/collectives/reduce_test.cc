// SPDX-License-Identifier: Apache-2.0
//
// Every instruction set against the scalar kernels: all types, ops, tails, misalignments and
// aliases, with and without finish.
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "catch.h"
#include "reduce_reference.h"
#include "skip.h"
#include "support/effort.h"

using namespace rondo;
using namespace reduce_reference;

namespace {

constexpr std::size_t guard = 64;
constexpr std::size_t most_sources = 8;
constexpr std::size_t most_count = 20011;
constexpr std::size_t most_bytes = most_count * 8;

class Harness {
 public:
  Harness(DType type, ReduceOp op, base::Isa isa)
      : type_(type),
        oracle_(kernels::find_reduce(type, op, base::Isa::scalar)),
        tested_(kernels::find_reduce(type, op, isa)) {
    for (std::uint32_t s = 0; s < most_sources; ++s)
      sources_.push_back(make_source(type, 17 * s + 1, most_bytes + guard));
    expected_.resize(most_bytes);
    output_.resize(most_bytes + 3 * guard);
  }

  bool present() const { return oracle_ != nullptr && tested_ != nullptr; }

  // Source s starts at shift * (s + 1) bytes, modulo guard. alias: the source that is also the
  // output, or -1. Returns what is wrong, or an empty string.
  std::string run(std::size_t sources, std::size_t count, std::size_t shift, int alias,
                  const kernels::Finish& finish) {
    const std::size_t bytes = count * size_of(type_);
    const std::byte* in[most_sources];
    for (std::size_t s = 0; s < sources; ++s)
      in[s] = sources_[s].data() + (shift * (s + 1)) % guard;
    oracle_(expected_.data(), in, sources, count, finish);
    std::byte* const out = output_.data() + guard + shift % guard;
    std::memset(output_.data(), 0x5a, guard + shift % guard);
    std::memset(out + bytes, 0x5a, guard);
    if (alias >= 0) {
      std::memcpy(out, in[alias], bytes);
      in[alias] = out;
    }
    tested_(out, in, sources, count, finish);
    const std::size_t wrong = first_difference(type_, out, expected_.data(), count);
    std::string result;
    if (wrong != count) result = "element " + std::to_string(wrong) + " differs";
    for (const std::byte* at = out - guard; at < out; ++at)
      if (*at != std::byte{0x5a}) result = "bytes before the output were written";
    for (const std::byte* at = out + bytes; at < out + bytes + guard; ++at)
      if (*at != std::byte{0x5a}) result = "bytes behind the output were written";
    return result;
  }

 private:
  DType type_;
  kernels::ReduceFunction oracle_, tested_;
  std::vector<std::vector<std::byte>> sources_;
  std::vector<std::byte> expected_, output_;
};

std::vector<kernels::Finish> finishes(DType type) {
  if (is_integer(type)) return {{}, {1, 2}, {1, 7}, {1, 1000}};
  return {{}, {1, 4}, {1, 7}, {0.1, 1}, {0.25, 3}, {1.7, 1.3}};
}

void check(base::Isa isa, DType type, ReduceOp op) {
  Harness harness(type, op, isa);
  if (!harness.present()) {
    REQUIRE_FALSE(supports(type, op));
    return;
  }
  const std::vector<kernels::Finish> all = finishes(type);
  // Every third length still leaves remainders of all kinds: 3 is prime to the length of a vector.
  const std::size_t step = testing::few_cases() ? 3 : 1;
  std::size_t turn = 0;
  const auto run = [&](std::size_t sources, std::size_t count, std::size_t shift, int alias,
                       const kernels::Finish& finish) {
    const std::string wrong = harness.run(sources, count, shift, alias, finish);
    if (wrong.empty()) return;
    FAIL(base::name_of(isa) << " " << name_of(type) << " " << name_of(op) << ", " << sources
                            << " sources, " << count << " elements, shift " << shift << ", alias "
                            << alias << ", * " << finish.multiply << " / " << finish.divide << ": "
                            << wrong);
  };
  for (const std::size_t sources : {1, 2, 3, 5, 8}) {
    for (std::size_t count = 0; count <= 300; count += count < 132 ? step : 13)
      for (int alias = -1; alias < static_cast<int>(sources); ++alias, ++turn) {
        run(sources, count, turn % 5 == 0 ? 0 : turn % 64, alias, {});
        run(sources, count, turn % 7 == 0 ? 0 : turn % 61, alias, all[turn % all.size()]);
      }
    for (const kernels::Finish& finish : all) run(sources, most_count, 3, -1, finish);
    for (const kernels::Finish& finish : all)
      run(sources, 4096, 0, static_cast<int>(sources) - 1, finish);
  }
}

void check_all(base::Isa isa) {
  for (int type = 0; type < dtype_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op)
      check(isa, static_cast<DType>(type), static_cast<ReduceOp>(op));
}

}  // namespace

TEST_CASE("avx2 gives the bits of the scalar kernels", "[.][avx2]") {
  if (kernels::find_reduce(DType::f32, ReduceOp::sum, base::Isa::avx2) == nullptr)
    skip_program("this processor or build has no avx2");
  check_all(base::Isa::avx2);
}

TEST_CASE("avx512 gives the bits of the scalar kernels", "[.][avx512]") {
  if (kernels::find_reduce(DType::f32, ReduceOp::sum, base::Isa::avx512) == nullptr)
    skip_program("this processor or build has no avx512");
  check_all(base::Isa::avx512);
}

TEST_CASE("scaled sums of every instruction set give the bits of the scalar ones, at every length",
          "[reduce]") {
  constexpr std::size_t most = 300, sources = 4;
  constexpr double all_factors[][sources] = {
      {0.125, 0.125, 1, 1}, {1, 1, 1, 1}, {0.1, -3.7, 1e-3, 0}, {3e38, -3e38, 1.2e-38, 2}};
  for (const DType type :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2}) {
    std::mt19937 random;
    std::vector<std::byte> values[sources];
    for (std::vector<std::byte>& each : values)
      for (std::size_t i = 0; i < most * size_of(type); ++i)
        each.push_back(static_cast<std::byte>(random()));
    const std::byte* const in[] = {values[0].data(), values[1].data(), values[2].data(),
                                   values[3].data()};
    std::size_t turn = 0;
    for (const base::Isa isa : isas_here())
      for (const auto& factors : all_factors)
        for (const kernels::Finish& finish :
             {kernels::Finish{1, 1}, kernels::Finish{4, 3}, kernels::Finish{0.3, 1}})
          for (std::size_t count = 0; count <= most; ++count) {
            const std::size_t used = 1 + ++turn % sources;
            std::vector<std::byte> wanted(values[0].size(), std::byte{0x5a}), out = wanted;
            kernels::find_scaled_sum(type, base::Isa::scalar)(wanted.data(), in, factors, used,
                                                              count, finish);
            kernels::find_scaled_sum(type, isa)(out.data(), in, factors, used, count, finish);
            INFO(base::name_of(isa)
                 << " " << name_of(type) << ", " << count << " elements of " << used
                 << " sources, factors " << factors[0] << ", " << factors[1]);
            REQUIRE(wanted == out);
            out = values[used - 1];
            const std::byte* alias[] = {in[0], in[1], in[2], in[3]};
            alias[used - 1] = out.data();
            kernels::find_scaled_sum(type, isa)(out.data(), alias, factors, used, count, finish);
            const auto end = static_cast<std::ptrdiff_t>(count * size_of(type));
            out.erase(out.begin() + end, out.end());
            wanted.erase(wanted.begin() + end, wanted.end());
            REQUIRE(wanted == out);
          }
  }
  for (const DType type : {DType::i64, DType::u64, DType::i32, DType::u32, DType::i16, DType::u16,
                           DType::i8, DType::u8})
    CHECK(kernels::find_scaled_sum(type) == nullptr);
}

TEST_CASE("scaled sums round each product and each sum", "[reduce]") {
  // 1 + 2^-24 is not an f32: added without rounding first, two products would show it.
  const float ones[] = {1 + 0x1p-23F, -1};
  const std::byte* const in[] = {reinterpret_cast<const std::byte*>(&ones[0]),
                                 reinterpret_cast<const std::byte*>(&ones[1])};
  const double factors[] = {static_cast<double>(1 + 0x1p-23F), 1 + 0x1p-22};
  for (const base::Isa isa : isas_here()) {
    float sum = -1;
    kernels::find_scaled_sum(DType::f32, isa)(reinterpret_cast<std::byte*>(&sum), in, factors, 2, 1,
                                              {});
    CHECK(sum == 0);  // a fused multiplication and addition gives 2^-46
  }
}

// meson also runs it with RONDO_ISA=scalar and with the unknown name sse9.
TEST_CASE("RONDO_ISA lowers the choice, an unknown name changes nothing", "[isa]") {
  const char* const wish = std::getenv("RONDO_ISA");
  if (wish != nullptr && std::string(wish) == "scalar") {
    CHECK(base::best_isa() == base::Isa::scalar);
    CHECK(kernels::find_reduce(DType::f32, ReduceOp::sum) ==
          kernels::find_reduce(DType::f32, ReduceOp::sum, base::Isa::scalar));
  } else if (wish == nullptr || std::string(wish) == "sse9") {
    CHECK(base::best_isa() == isas_here().back());
  }
}

TEST_CASE("every supported pair has a kernel, the others none", "[reduce]") {
  for (const base::Isa isa : isas_here())
    for (int type = 0; type < dtype_count; ++type)
      for (int op = 0; op < reduce_op_count; ++op)
        CHECK((kernels::find_reduce(static_cast<DType>(type), static_cast<ReduceOp>(op), isa) !=
               nullptr) == supports(static_cast<DType>(type), static_cast<ReduceOp>(op)));
  CHECK(kernels::find_reduce(static_cast<DType>(99), ReduceOp::sum, base::Isa::scalar) == nullptr);
  CHECK(kernels::find_reduce(DType::f32, static_cast<ReduceOp>(99), base::Isa::scalar) == nullptr);
  CHECK(kernels::find_reduce(DType::f32, ReduceOp::sum, base::best_isa()) != nullptr);
  CHECK(base::name_of(base::Isa::avx512) == "avx512");
}

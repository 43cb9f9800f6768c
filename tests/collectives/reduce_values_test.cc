// SPDX-License-Identifier: Apache-2.0
//
// Every kernel against the reference, for all codes of the short floats and for special values of
// the other types.
#include <array>
#include <bit>
#include <string>

#include "catch.h"
#include "reduce_reference.h"

using namespace rondo;
using namespace reduce_reference;

namespace {

constexpr std::array short_floats{DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2};
constexpr std::array float_ops{ReduceOp::sum, ReduceOp::mean, ReduceOp::product, ReduceOp::min,
                               ReduceOp::max};

std::string label(DType type, ReduceOp op, base::Isa isa) {
  return std::string(name_of(type)) + " " + std::string(name_of(op)) + " " +
         std::string(base::name_of(isa));
}

// The first index where out differs from f32 arithmetic with one rounding; count if none does.
std::size_t first_wrong(const ShortFloat& format, ReduceOp op, const std::vector<std::byte>& a,
                        const std::vector<std::byte>& b, const std::vector<std::byte>& out) {
  const std::size_t bytes = format.bytes(), count = out.size() / bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<float>(format.value(code_at(a, i, bytes)));
    const auto y = static_cast<float>(format.value(code_at(b, i, bytes)));
    const std::uint32_t expected = format.nearest(reference_of(op, x, y)),
                        actual = code_at(out, i, bytes);
    if (actual != expected && !(format.is_nan(actual) && format.is_nan(expected))) return i;
  }
  return count;
}

template <class T>
struct Case {
  T a, b;
};

template <class T>
bool same_value(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
std::uint64_t bits_of(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

template <class T>
T reduced(DType type, ReduceOp op, base::Isa isa, const std::vector<T>& sources,
          kernels::Finish finish = {}) {
  // Enough copies for full registers and a rest, so that both paths must agree.
  constexpr std::size_t copies = 83;
  std::vector<std::vector<T>> in;
  std::vector<const std::byte*> pointers;
  for (const T source : sources) in.emplace_back(copies, source);
  for (const auto& values : in)
    pointers.push_back(reinterpret_cast<const std::byte*>(values.data()));
  std::vector<T> out(copies);
  kernels::find_reduce(type, op, isa)(reinterpret_cast<std::byte*>(out.data()), pointers.data(),
                                      pointers.size(), copies, finish);
  for (const T value : out) REQUIRE(same_value(value, out[0]));
  return out[0];
}

template <class T>
void check_special_floats(DType type) {
  using Limits = std::numeric_limits<T>;
  const std::array values{T{0},
                          T{-0.0f},
                          T{1},
                          T{-1},
                          Limits::denorm_min(),
                          -Limits::denorm_min(),
                          Limits::min(),
                          Limits::max(),
                          Limits::lowest(),
                          Limits::infinity(),
                          -Limits::infinity(),
                          Limits::quiet_NaN(),
                          -static_cast<T>(std::nan("77")),
                          T{1.5f},
                          T{3},
                          Limits::epsilon()};
  for (const base::Isa isa : isas_here()) {
    for (const ReduceOp op : float_ops) {
      for (const T a : values) {
        for (const T b : values) {
          const T actual = reduced<T>(type, op, isa, {a, b});
          const T expected = reference_of(op, a, b);
          INFO(label(type, op, isa) << " of " << a << " and " << b << " gives " << actual);
          REQUIRE(same_value(actual, expected));
          if (actual != actual) REQUIRE(bits_of(actual) == ~decltype(bits_of(actual)){} >> 1);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("f8: every pair of codes, every op", "[reduce]") {
  for (const DType type : {DType::f8e4m3, DType::f8e5m2}) {
    const ShortFloat format(type);
    std::vector<std::byte> a(65536), b(65536), out(65536);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<std::byte>(i / 256);
      b[i] = static_cast<std::byte>(i % 256);
    }
    const std::byte* const in[] = {a.data(), b.data()};
    for (const base::Isa isa : isas_here()) {
      for (const ReduceOp op : float_ops) {
        kernels::find_reduce(type, op, isa)(out.data(), in, 2, out.size(), {});
        const std::size_t wrong = first_wrong(format, op, a, b, out);
        INFO(label(type, op, isa) << " of codes " << wrong / 256 << " and " << wrong % 256);
        REQUIRE(wrong == out.size());
      }
    }
  }
}

TEST_CASE("f16 and bf16: every code with special partners, every op", "[reduce]") {
  for (const DType type : {DType::f16, DType::bf16}) {
    const ShortFloat format(type);
    const auto infinity = static_cast<std::uint32_t>(format.finite().size());
    const std::array<std::uint32_t, 9> partners{0,
                                                0x8000,
                                                1,
                                                0x8003,
                                                format.nearest(1),
                                                format.nearest(-1.5),
                                                infinity - 1,
                                                infinity | 0x8000u,
                                                infinity + 1};
    std::vector<std::byte> a(2 * 65536), b(2 * 65536), out(2 * 65536);
    for (std::uint32_t code = 0; code < 65536; ++code) put_code(a, code, 2, code);
    const std::byte* const in[] = {a.data(), b.data()};
    for (const std::uint32_t partner : partners) {
      for (std::size_t i = 0; i < 65536; ++i) put_code(b, i, 2, partner);
      for (const base::Isa isa : isas_here()) {
        for (const ReduceOp op : float_ops) {
          kernels::find_reduce(type, op, isa)(out.data(), in, 2, 65536, {});
          const std::size_t wrong = first_wrong(format, op, a, b, out);
          INFO(label(type, op, isa) << " of codes " << wrong << " and " << partner);
          REQUIRE(wrong == 65536);
        }
      }
    }
  }
}

TEST_CASE("short floats: one source keeps every code", "[reduce]") {
  for (const DType type : short_floats) {
    const ShortFloat format(type);
    std::vector<std::byte> a(format.codes() * format.bytes()), out(a.size());
    for (std::uint32_t code = 0; code < format.codes(); ++code)
      put_code(a, code, format.bytes(), code);
    const std::byte* const in[] = {a.data()};
    for (const base::Isa isa : isas_here()) {
      kernels::find_reduce(type, ReduceOp::sum, isa)(out.data(), in, 1, format.codes(), {});
      for (std::uint32_t code = 0; code < format.codes(); ++code) {
        const std::uint32_t actual = code_at(out, code, format.bytes());
        if (actual == code || (format.is_nan(code) && format.is_nan(actual))) continue;
        FAIL(label(type, ReduceOp::sum, isa) << ": code " << code << " became " << actual);
      }
    }
  }
}

// A source of ones, multiplied by x, gives x rounded to the type. Tries all values, all ties, their
// neighbours, and the edge of overflow.
TEST_CASE("short floats: rounding of f32 at values, ties and their neighbours", "[reduce]") {
  for (const DType type : short_floats) {
    const ShortFloat format(type);
    std::vector<float> wanted{HUGE_VALF,
                              std::nanf(""),
                              std::numeric_limits<float>::max(),
                              std::numeric_limits<float>::denorm_min(),
                              std::numeric_limits<float>::min(),
                              1e30f,
                              2097152.0f,
                              4194304.0f};
    const auto& values = format.finite();
    const double past = values.back() + (values.back() - values[values.size() - 2]);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double next = i + 1 < values.size() ? values[i + 1] : past;
      const auto tie = static_cast<float>((values[i] + next) / 2);
      for (const float x : {static_cast<float>(values[i]), tie})
        for (const float y : {x, std::nextafterf(x, 0), std::nextafterf(x, HUGE_VALF)})
          wanted.push_back(y);
    }
    const std::size_t count = 64 / format.bytes();
    std::vector<std::byte> ones(64), out(64);
    for (std::size_t i = 0; i < count; ++i) put_code(ones, i, format.bytes(), format.nearest(1));
    const std::byte* const in[] = {ones.data()};
    for (const base::Isa isa : isas_here()) {
      const kernels::ReduceFunction reduce = kernels::find_reduce(type, ReduceOp::sum, isa);
      for (const float magnitude : wanted) {
        for (const float x : {magnitude, -magnitude}) {
          reduce(out.data(), in, 1, count, kernels::Finish{x, 1});
          const std::uint32_t expected = format.nearest(x);
          for (std::size_t i = 0; i < count; ++i) {
            const std::uint32_t actual = code_at(out, i, format.bytes());
            if (actual == expected || (format.is_nan(actual) && format.is_nan(expected))) continue;
            FAIL(label(type, ReduceOp::sum, isa)
                 << ": " << x << " in place " << i << " became " << actual << ", not " << expected);
          }
        }
      }
    }
  }
}

TEST_CASE("overflow of f8: e4m3 to NaN, e5m2 to infinity", "[reduce]") {
  for (const base::Isa isa : isas_here()) {
    REQUIRE(reduced<std::uint8_t>(DType::f8e4m3, ReduceOp::sum, isa, {0x7e, 0x58}) ==
            0x7e);  // 448 + 16: a tie, rounded to even
    REQUIRE((reduced<std::uint8_t>(DType::f8e4m3, ReduceOp::sum, isa, {0x7e, 0x59}) & 0x7f) ==
            0x7f);  // 448 + 18
    REQUIRE(reduced<std::uint8_t>(DType::f8e5m2, ReduceOp::sum, isa, {0x7b, 0x7b}) == 0x7c);
    REQUIRE(reduced<std::uint8_t>(DType::f8e5m2, ReduceOp::sum, isa, {0xfb, 0xfb}) == 0xfc);
  }
}

TEST_CASE("short floats are rounded once over all sources", "[reduce]") {
  // 2048 + 1 is a tie in f16: rounding after each source would stay at 2048.
  for (const base::Isa isa : isas_here()) {
    REQUIRE(reduced<std::uint16_t>(DType::f16, ReduceOp::sum, isa, {0x6800, 0x3c00, 0x3c00}) ==
            0x6801);
    REQUIRE(reduced<std::uint16_t>(DType::bf16, ReduceOp::sum, isa, {0x4380, 0x3f80, 0x3f80}) ==
            0x4381);  // 256 + 1 + 1
    REQUIRE(reduced<std::uint8_t>(DType::f8e4m3, ReduceOp::sum, isa, {0x58, 0x38, 0x38}) ==
            0x59);  // 16 + 1 + 1
  }
}

TEST_CASE("f32 and f64: special values", "[reduce]") {
  check_special_floats<float>(DType::f32);
  check_special_floats<double>(DType::f64);
}

TEST_CASE("integers wrap and are finished towards zero", "[reduce]") {
  for (const base::Isa isa : isas_here()) {
    REQUIRE(reduced<std::int32_t>(DType::i32, ReduceOp::sum, isa, {INT32_MAX, 1}) == INT32_MIN);
    REQUIRE(reduced<std::int64_t>(DType::i64, ReduceOp::product, isa, {INT64_MIN, -1}) ==
            INT64_MIN);
    REQUIRE(reduced<std::int8_t>(DType::i8, ReduceOp::product, isa, {-128, -1}) == -128);
    REQUIRE(reduced<std::uint8_t>(DType::u8, ReduceOp::sum, isa, {200, 100}) == 44);
    REQUIRE(reduced<std::int8_t>(DType::i8, ReduceOp::min, isa, {-128, 127}) == -128);
    REQUIRE(reduced<std::uint8_t>(DType::u8, ReduceOp::max, isa, {0x80, 0x7f}) == 0x80);
    REQUIRE(reduced<std::uint64_t>(DType::u64, ReduceOp::min, isa, {UINT64_MAX, 1}) == 1);
    REQUIRE(reduced<std::int32_t>(DType::i32, ReduceOp::mean, isa, {-7, 0},
                                  kernels::Finish{1, 2}) == -3);
    REQUIRE(reduced<std::int32_t>(DType::i32, ReduceOp::mean, isa, {INT32_MIN, 0},
                                  kernels::Finish{1, 3}) == INT32_MIN / 3);
    REQUIRE(reduced<std::uint32_t>(DType::u32, ReduceOp::mean, isa, {UINT32_MAX, 0},
                                   kernels::Finish{1, 1}) == UINT32_MAX);
    REQUIRE(reduced<std::uint32_t>(DType::u32, ReduceOp::mean, isa, {UINT32_MAX, 0},
                                   kernels::Finish{1, 7}) == UINT32_MAX / 7);
    REQUIRE(reduced<std::uint64_t>(DType::u64, ReduceOp::mean, isa, {UINT64_MAX, 0},
                                   kernels::Finish{1, 7}) == UINT64_MAX / 7);
    REQUIRE(reduced<std::int64_t>(DType::i64, ReduceOp::mean, isa, {INT64_MIN, 0},
                                  kernels::Finish{1, 10}) == INT64_MIN / 10);
    REQUIRE(reduced<std::uint8_t>(DType::u8, ReduceOp::mean, isa, {255, 0},
                                  kernels::Finish{1, 300}) == 0);
    REQUIRE(reduced<std::int16_t>(DType::i16, ReduceOp::sum, isa, {INT16_MAX, 1}) == INT16_MIN);
    REQUIRE(reduced<std::uint16_t>(DType::u16, ReduceOp::product, isa, {65535, 65535}) == 1);
    REQUIRE(reduced<std::int16_t>(DType::i16, ReduceOp::min, isa, {-1, 1}) == -1);
    REQUIRE(reduced<std::uint16_t>(DType::u16, ReduceOp::max, isa, {0xffff, 1}) == 0xffff);
  }
}

TEST_CASE("f32 is finished in f64", "[reduce]") {
  for (const base::Isa isa : isas_here()) {
    // In f32 the first product would overflow, and product and quotient would both be rounded.
    REQUIRE(reduced<float>(DType::f32, ReduceOp::sum, isa, {3e38f, 0}, kernels::Finish{10, 20}) ==
            1.5e38f);
    REQUIRE(reduced<float>(DType::f32, ReduceOp::sum, isa, {1, 2}, kernels::Finish{0.1, 1}) ==
            static_cast<float>(3.0 * 0.1));
    REQUIRE(reduced<float>(DType::f32, ReduceOp::mean, isa, {1, 9}, kernels::Finish{1, 3}) ==
            static_cast<float>(10.0 / 3));
    REQUIRE(reduced<double>(DType::f64, ReduceOp::mean, isa, {1, 9}, kernels::Finish{0.7, 3}) ==
            10.0 * 0.7 / 3);
  }
}

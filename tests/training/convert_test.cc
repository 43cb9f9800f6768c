// SPDX-License-Identifier: Apache-2.0
//
// Compares every instruction set with the scalar conversions, and those with the definition of the
// types.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <rondo/convert.h>
#include <rondo/error.h>

#include "catch.h"
#include "collectives/kernels/convert.h"
#include "collectives/reduce_reference.h"

namespace rondo::testing {
namespace {

using namespace reduce_reference;

constexpr DType short_types[] = {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2};

// Random bits, and for every value of a short type: the value, its neighbours, and the middle
// between it and the next one.
std::vector<float> many_floats(DType type) {
  std::vector<float> values;
  std::mt19937 random(7);
  for (int i = 0; i < 300'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    values.push_back(0);
    std::memcpy(&values.back(), &bits, sizeof bits);
  }
  if (type == DType::f64) return values;
  const std::vector<double> finite = ShortFloat(type).finite();
  for (std::size_t i = 0; i < finite.size(); ++i) {
    const double next = i + 1 < finite.size() ? finite[i + 1] : 2 * finite[i] - finite[i - 1];
    for (const double value : {finite[i], (finite[i] + next) / 2}) {
      const auto here = static_cast<float>(value);
      for (const float each :
           {here, std::nextafter(here, -1.0f), std::nextafter(here, HUGE_VALF)}) {
        values.push_back(each);
        values.push_back(-each);
      }
    }
  }
  return values;
}

template <class T>
std::vector<T> with_scalar(DType from, DType to, const void* in, std::size_t count) {
  std::vector<T> out(count);
  kernels::find_convert(from, to, base::Isa::scalar)(reinterpret_cast<std::byte*>(out.data()),
                                                     static_cast<const std::byte*>(in), count);
  return out;
}

// Returns the first element that differs from the scalar kernel's; any NaN equals any other. count
// if none differs.
std::size_t first_difference(base::Isa isa, DType from, DType to, const std::byte* in,
                             std::size_t count) {
  const auto expected = with_scalar<std::uint64_t>(from, to, in, count);
  const auto* const wanted = reinterpret_cast<const std::byte*>(expected.data());
  const std::size_t bytes = size_of(to);
  std::vector<std::byte> out(count * bytes + 3, std::byte{0x5a});
  std::byte* const unaligned = out.data() + 1;
  kernels::find_convert(from, to, isa)(unaligned, in, count);
  if (out.front() != std::byte{0x5a} || out.back() != std::byte{0x5a}) return 0;
  const auto is_nan = [&](const std::byte* at) {
    if (to == DType::f64) {
      double value;
      std::memcpy(&value, at, sizeof value);
      return std::isnan(value);
    }
    if (to == DType::f32) {
      float value;
      std::memcpy(&value, at, sizeof value);
      return std::isnan(value);
    }
    std::uint32_t code = 0;
    std::memcpy(&code, at, bytes);
    static const ShortFloat types[] = {ShortFloat(DType::f16), ShortFloat(DType::bf16),
                                       ShortFloat(DType::f8e4m3), ShortFloat(DType::f8e5m2)};
    return types[static_cast<int>(to) - static_cast<int>(DType::f16)].is_nan(code);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte *a = unaligned + i * bytes, *b = wanted + i * bytes;
    if (std::memcmp(a, b, bytes) != 0 && !(is_nan(a) && is_nan(b))) return i;
  }
  return count;
}

TEST_CASE("every code of a short float becomes its value, and back") {
  for (const DType type : short_types) {
    const ShortFloat reference(type);
    std::vector<std::byte> codes(reference.codes() * reference.bytes());
    for (std::uint32_t code = 0; code < reference.codes(); ++code)
      put_code(codes, code, reference.bytes(), code);
    const std::vector<float> values =
        with_scalar<float>(type, DType::f32, codes.data(), reference.codes());
    std::uint32_t wrong = 0;
    for (std::uint32_t code = 0; code < reference.codes(); ++code) {
      const double wanted = reference.value(code);
      const auto value = static_cast<double>(values[code]);
      if (std::isnan(wanted) ? !std::isnan(value)
                             : value != wanted || std::signbit(value) != std::signbit(wanted))
        ++wrong;
    }
    CHECK(wrong == 0);
    std::vector<std::byte> back(codes.size());
    convert(values.data(), DType::f32, back.data(), type, values.size());
    for (std::uint32_t code = 0; code < reference.codes(); ++code) {
      const std::uint32_t now = code_at(back, code, reference.bytes());
      if (reference.is_nan(code) ? !reference.is_nan(now) : now != code) ++wrong;
    }
    CHECK(wrong == 0);
    for (const base::Isa isa : isas_here()) {
      INFO(name_of(type) << " " << base::name_of(isa));
      CHECK(first_difference(isa, type, DType::f32, codes.data(), reference.codes()) ==
            reference.codes());
    }
  }
}

TEST_CASE("f32 becomes the nearest short float, ties to even") {
  for (const DType type : short_types) {
    const ShortFloat reference(type);
    const std::vector<float> values = many_floats(type);
    std::vector<std::byte> codes(values.size() * reference.bytes());
    kernels::find_convert(DType::f32, type, base::Isa::scalar)(
        codes.data(), reinterpret_cast<const std::byte*>(values.data()), values.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t code = code_at(codes, i, reference.bytes());
      if (std::isnan(values[i]) ? !reference.is_nan(code)
                                : code != reference.nearest(static_cast<double>(values[i])))
        ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("instruction sets convert alike, at any address and count") {
  for (const base::Isa isa : isas_here()) {
    for (const DType type : {DType::f64, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2}) {
      INFO(name_of(type) << " " << base::name_of(isa));
      const std::vector<float> values = many_floats(type);
      const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
      CHECK(first_difference(isa, DType::f32, type, bytes, values.size()) == values.size());
      for (std::size_t count = 0; count < 140; ++count) {
        const std::size_t shift = count % 7;
        REQUIRE(first_difference(isa, DType::f32, type, bytes + shift, count) == count);
        REQUIRE(first_difference(isa, type, DType::f32, bytes + shift, count) == count);
      }
    }
  }
}

TEST_CASE("f64 becomes the nearest f32") {
  const std::vector<double> values{1.0 + 0x1p-24, 1.0 + 0x1.8p-23, -1e39, 1e-46,
                                   std::nan(""),  HUGE_VAL,        0.1};
  std::vector<float> out(values.size());
  convert(values.data(), DType::f64, out.data(), DType::f32, values.size());
  CHECK(out[0] == 1.0f);
  CHECK(out[1] == 1.0f + 0x1p-22f);
  CHECK(out[2] == -HUGE_VALF);
  CHECK(out[3] == 0.0f);
  CHECK(std::isnan(out[4]));
  CHECK(out[5] == HUGE_VALF);
  CHECK(out[6] == 0.1f);
  std::mt19937_64 random(5);
  std::vector<std::uint64_t> bits(10'001);
  for (std::uint64_t& each : bits) each = random() & 0xc7ffffffffffffffu;  // in the range of f32
  for (const base::Isa isa : isas_here())
    CHECK(first_difference(isa, DType::f64, DType::f32,
                           reinterpret_cast<const std::byte*>(bits.data()),
                           bits.size()) == bits.size());
}

std::string refused(const void* in, DType in_type, void* out, DType out_type, std::size_t count) {
  try {
    convert(in, in_type, out, out_type, count);
  } catch (const Error& error) {
    return error.code() == Errc::invalid_argument ? error.what() : "another error";
  }
  return "";
}

TEST_CASE("convert: equal types are copied, other pairs and overlaps are refused") {
  std::vector<float> a{1, 2, 3}, b(3);
  convert(a.data(), DType::f32, b.data(), DType::f32, 3);
  CHECK(a == b);
  convert(a.data(), DType::f32, a.data(), DType::f32, 3);
  CHECK(a == b);
  CHECK(refused(a.data(), DType::f32, a.data(), DType::f16, 3) ==
        "convert: in (3 f32) and out (f16) overlap: give each its own memory");
  CHECK(refused(a.data(), DType::f32, a.data() + 1, DType::f32, 2) != "");
  CHECK(
      refused(a.data(), DType::f16, b.data(), DType::bf16, 3) ==
      "convert: no conversion from f16 to bf16: both must be floating-point types and one of them "
      "f32, or both must be the same");
  CHECK(refused(a.data(), DType::f32, b.data(), DType::i32, 3) != "");
  CHECK(refused(a.data(), static_cast<DType>(99), b.data(), static_cast<DType>(99), 3) != "");
  CHECK(refused(nullptr, DType::f32, nullptr, DType::f16, 0) == "");
}

}  // namespace
}  // namespace rondo::testing

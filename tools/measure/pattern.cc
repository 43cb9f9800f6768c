// SPDX-License-Identifier: Apache-2.0
//
// Values are chosen so that no partial result needs rounding, in any order of additions. That is
// why a result has only one right answer, and why this file computes it without Rondo's kernels.
#include "tools/measure/pattern.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/mix.h"

namespace rondo::tools {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
};

// Floating-point types only, which are the first ones.
Format format_of(DType type) {
  constexpr std::array<Format, 6> formats{{{11, 52}, {8, 23}, {5, 10}, {8, 7}, {4, 3}, {5, 2}}};
  return formats[static_cast<std::size_t>(type)];
}

// Mixes all bits of its arguments. Odd multiples keep their sums apart.
std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return base::spread_bits(a * base::golden_step + b * 0xD1B54A32D192ED03u +
                           c * 0x8CB92BA72F3D8DD7u);
}

// real for floating-point types, bits (sign extended) for integers.
struct Value {
  double real = 0;
  std::uint64_t bits = 0;
};

bool is_signed(DType type) {
  return type == DType::i64 || type == DType::i32 || type == DType::i16 || type == DType::i8;
}

std::uint64_t narrow(DType type, std::uint64_t bits) {
  const auto shift = 64 - 8 * size_of(type);
  if (is_signed(type))
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << shift) >> shift);
  return bits << shift >> shift;
}

std::uint64_t largest_integer(DType type) {
  const std::uint64_t enough = std::uint64_t{1} << 40;
  if (!is_integer(type)) return std::min(enough, largest_exact_integer(type));
  return std::min(enough,
                  ~std::uint64_t{0} >> (64 - 8 * size_of(type) + (is_signed(type) ? 1 : 0)));
}

Value from_integer(DType type, std::int64_t value) {
  return {static_cast<double>(value), narrow(type, static_cast<std::uint64_t>(value))};
}

// A whole number of at most `limit`, of either sign where the type has one.
Value bounded(DType type, std::uint64_t random, std::uint64_t limit) {
  const bool negative = (!is_integer(type) || is_signed(type)) && (random & 1) != 0;
  const auto magnitude = static_cast<std::int64_t>((random >> 1) % (limit + 1));
  return from_integer(type, negative ? -magnitude : magnitude);
}

// Integers whose sum over the ranks, and every partial sum, is exact. With too many ranks for that,
// the ranks form groups: at each element one group has numbers and the others have zero.
Value addend(const Call& call, int rank, std::size_t element, std::uint64_t random) {
  const std::uint64_t ranks = static_cast<std::uint64_t>(call.size),
                      limit = largest_integer(call.type);
  const std::uint64_t groups = (ranks + limit / 2 - 1) / (limit / 2);
  if (static_cast<std::uint64_t>(rank) % groups != mix(1, element, 0) % groups) return {};
  return bounded(call.type, random, limit / ((ranks + groups - 1) / groups));
}

// Floating point: 0.5, 1 or 2 with a sign. At each element at most four ranks differ from magnitude
// one, so no product leaves the range even of f8e4m3. Integers: odd numbers.
Value factor(const Call& call, int rank, std::size_t element, std::uint64_t random) {
  if (is_integer(call.type)) return {0, narrow(call.type, random | 1)};
  const std::uint64_t groups = (static_cast<std::uint64_t>(call.size) + 3) / 4;
  const double sign = (random & 1) != 0 ? -1 : 1;
  if (static_cast<std::uint64_t>(rank) % groups != mix(2, element, 0) % groups) return {sign, 0};
  constexpr double magnitudes[] = {0.5, 1, 2};
  return {sign * magnitudes[(random >> 1) % 3], 0};
}

Value contribution(const Call& call, int rank, std::size_t element) {
  const std::uint64_t random = mix(3, element, static_cast<std::uint64_t>(rank) + 1);
  const std::uint64_t second = mix(4, element, random), third = mix(5, element, random);
  switch (call.op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      if (is_integer(call.type)) return {0, narrow(call.type, random)};
      return addend(call, rank, element, random);
    case ReduceOp::product:
      return factor(call, rank, element, random);
    case ReduceOp::bit_and:
      return {0, narrow(call.type, random | second | third)};
    case ReduceOp::bit_or:
      return {0, narrow(call.type, random & second & third)};
    case ReduceOp::bit_xor:
      return {0, narrow(call.type, random)};
    default:
      break;
  }
  if (is_integer(call.type)) return {0, narrow(call.type, random)};
  return bounded(call.type, random, largest_integer(call.type));
}

Value combine(const Call& call, Value a, Value b) {
  const auto signed_a = static_cast<std::int64_t>(a.bits),
             signed_b = static_cast<std::int64_t>(b.bits);
  const bool a_less = is_signed(call.type) ? signed_a < signed_b : a.bits < b.bits;
  switch (call.op) {
    case ReduceOp::product:
      return {a.real * b.real, narrow(call.type, a.bits * b.bits)};
    case ReduceOp::min:
      return {std::min(a.real, b.real), a_less ? a.bits : b.bits};
    case ReduceOp::max:
      return {std::max(a.real, b.real), a_less ? b.bits : a.bits};
    case ReduceOp::bit_and:
      return {0, a.bits & b.bits};
    case ReduceOp::bit_or:
      return {0, a.bits | b.bits};
    case ReduceOp::bit_xor:
      return {0, a.bits ^ b.bits};
    default:
      return {a.real + b.real, narrow(call.type, a.bits + b.bits)};
  }
}

// Rounded towards zero, without a sum that could wrap.
template <class Integer>
Value integer_mean(const Call& call, std::size_t element) {
  const auto size = static_cast<Integer>(call.size);
  Integer whole = 0, rest = 0;
  for (int rank = 0; rank < call.size; ++rank) {
    const auto value = static_cast<Integer>(contribution(call, rank, element).bits);
    whole += value / size;
    rest += value % size;
  }
  whole += rest / size;
  rest %= size;
  if constexpr (std::is_signed_v<Integer>) {
    if (whole > 0 && rest < 0) --whole;
    if (whole < 0 && rest > 0) ++whole;
  }
  return {0, static_cast<std::uint64_t>(whole)};
}

// The one division of a mean, with the precision that the library promises: f64 for f64 and f32,
// f32 for shorter types.
Value divide(const Call& call, Value sum) {
  if (size_of(call.type) >= 4) return {sum.real / call.size, 0};
  return {static_cast<double>(static_cast<float>(sum.real) / static_cast<float>(call.size)), 0};
}

Value result(const Call& call, std::size_t element) {
  if (call.op == ReduceOp::mean && is_integer(call.type))
    return is_signed(call.type) ? integer_mean<std::int64_t>(call, element)
                                : integer_mean<std::uint64_t>(call, element);
  Value value = contribution(call, 0, element);
  for (int rank = 1; rank < call.size; ++rank)
    value = combine(call, value, contribution(call, rank, element));
  return call.op == ReduceOp::mean ? divide(call, value) : value;
}

std::uint64_t encode(DType type, Value value) {
  return is_integer(type) ? value.bits : encode_float(type, value.real);
}

void store(std::byte* to, std::uint64_t bits, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) to[i] = static_cast<std::byte>(bits >> (8 * i));
}

std::vector<std::byte> input_table(const Call& call, int rank, std::size_t period) {
  const std::size_t width = size_of(call.type);
  std::vector<std::byte> table(period * width);
  for (std::size_t i = 0; i < period; ++i) {
    const std::uint64_t bits = call.operation.traits().reduces
                                   ? encode(call.type, contribution(call, rank, i))
                                   : mix(6, i, static_cast<std::uint64_t>(rank) + 1);
    store(table.data() + i * width, bits, width);
  }
  return table;
}

std::vector<std::byte> result_table(const Call& call, std::size_t period) {
  const std::size_t width = size_of(call.type);
  std::vector<std::byte> table(period * width);
  for (std::size_t i = 0; i < period; ++i)
    store(table.data() + i * width, encode(call.type, result(call, i)), width);
  return table;
}

}  // namespace

std::uint64_t encode_float(DType type, double value) {
  if (type == DType::f64) return std::bit_cast<std::uint64_t>(value);
  const Format format = format_of(type);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const std::uint64_t sign = std::signbit(value) ? 1 : 0;
  std::uint64_t bits = 0;
  if (value != 0) {
    const int exponent = std::max(std::ilogb(value), 1 - bias);
    // In units of the last place. A carry out of the mantissa correctly increments the exponent.
    const double units =
        std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
    bits = static_cast<std::uint64_t>(units) +
           (static_cast<std::uint64_t>(exponent + bias - 1) << format.mantissa_bits);
  }
  return bits | sign << (format.exponent_bits + format.mantissa_bits);
}

std::uint64_t largest_exact_integer(DType type) {
  return std::uint64_t{2} << format_of(type).mantissa_bits;
}

Pattern::Pattern(const Call& call)
    : call_(call), width_(size_of(call.type)), period_(call.size <= 16 ? 16381 : 1021) {
  if (call.operation == Collective::barrier) return;
  input_ = input_table(call, call.rank, period_);
  const base::Traits& traits = call.operation.traits();
  if (traits.reduces) {
    expected_.push_back(result_table(call, period_));
  } else if (traits.in == base::Extent::on_root) {
    expected_.push_back(input_table(call, call.root, period_));
  } else {
    for (int rank = 0; rank < call.size; ++rank)
      expected_.push_back(input_table(call, rank, period_));
  }
  poison_ = expected_;
  for (auto& table : poison_)
    for (std::byte& byte : table) byte = ~byte;
}

std::size_t Pattern::phase(std::size_t first, std::uint64_t iteration) const {
  return (first + iteration * 7919) % period_;
}

void Pattern::copy(std::byte* to, const std::vector<std::byte>& table, std::size_t first,
                   std::size_t count, std::uint64_t iteration) const {
  for (std::size_t at = phase(first, iteration); count > 0; at = 0) {
    const std::size_t part = std::min(count, period_ - at);
    std::memcpy(to, table.data() + at * width_, part * width_);
    to += part * width_;
    count -= part;
  }
}

void Pattern::fill_input(std::byte* to, std::size_t first, std::size_t count,
                         std::uint64_t iteration) const {
  copy(to, input_, first, count, iteration);
}

void Pattern::poison(std::byte* to, std::size_t first, std::size_t count, std::uint64_t iteration,
                     int block) const {
  copy(to, poison_[static_cast<std::size_t>(block)], first, count, iteration);
}

std::uint64_t Pattern::count_wrong(const std::byte* at, std::size_t first, std::size_t count,
                                   std::uint64_t iteration, int block) const {
  const std::byte* table = expected_[static_cast<std::size_t>(block)].data();
  std::uint64_t wrong = 0;
  for (std::size_t from = phase(first, iteration); count > 0; from = 0) {
    const std::size_t part = std::min(count, period_ - from);
    const std::byte* expected = table + from * width_;
    if (std::memcmp(at, expected, part * width_) != 0)
      for (std::size_t i = 0; i < part; ++i)
        if (std::memcmp(at + i * width_, expected + i * width_, width_) != 0) ++wrong;
    at += part * width_;
    count -= part;
  }
  return wrong;
}

}  // namespace rondo::tools

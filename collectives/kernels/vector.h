// SPDX-License-Identifier: Apache-2.0
//
// The reduction loop over vectors of one width, written with the compiler's vector types. An
// instruction set is a struct Machine:
//   bytes                             width of its registers
//   widen_half(halves, low, high)     f16 -> two vectors of f32
//   narrow_half(low, high)            and back, rounded to nearest even
//   narrow_words(low, high)           elements of 32 bits that hold 16 -> elements of 16 bits
//   narrow_bytes(words)               elements of 16 bits that hold 8 -> half a register of 8 bits
//   load_rest(to, from, bytes)        copies fewer bytes than a register, fills it up with zeros
// A unit is one register of elements as they lie in memory, decoded into one or more vectors of
// accumulators. Everything here is in an anonymous namespace, and nothing instantiates a template
// of the standard library: see table.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/kernels/scaling.h"
#include "collectives/kernels/table.h"

#define RONDO_INLINE [[gnu::always_inline]] inline

namespace rondo::kernels {
namespace {

template <class T, std::size_t Bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T, class Machine>
using Vector = typename VectorOf<T, Machine::bytes>::type;

template <class To, class From>
RONDO_INLINE To cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return (To)from;
}

template <class V>
RONDO_INLINE V load(const std::byte* from) {
  V value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class V>
RONDO_INLINE void store(std::byte* to, V value) {
  std::memcpy(to, &value, sizeof value);
}

// Two moves that may overlap.
template <std::size_t Half>
RONDO_INLINE void move_ends(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::byte first[Half], last[Half];
  std::memcpy(first, from, Half);
  std::memcpy(last, from + bytes - Half, Half);
  std::memcpy(to, first, Half);
  std::memcpy(to + bytes - Half, last, Half);
}

// Copies fewer than 64 bytes, at least one, without a call.
RONDO_INLINE void store_rest(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes >= 32) return move_ends<32>(to, from, bytes);
  if (bytes >= 16) return move_ends<16>(to, from, bytes);
  if (bytes >= 8) return move_ends<8>(to, from, bytes);
  if (bytes >= 4) return move_ends<4>(to, from, bytes);
  if (bytes >= 2) return move_ends<2>(to, from, bytes);
  *to = *from;
}

// Bits is the vector of unsigned integers of the same shape. ordered: the signedness of integers
// matters. tame: see ShortFloats.
struct Sum {
  static constexpr bool tame = true;
  static constexpr bool ordered = false;
  template <class Bits, class V>
  RONDO_INLINE static V apply(V a, V b) {
    return a + b;
  }
};

// Sums or means of products of inputs and factors, which may be large.
struct SumOfProducts : Sum {
  static constexpr bool tame = false;
};

struct Product {
  static constexpr bool tame = false;
  static constexpr bool ordered = false;
  template <class Bits, class V>
  RONDO_INLINE static V apply(V a, V b) {
    return a * b;
  }
};

struct And {
  static constexpr bool ordered = false;
  template <class Bits, class V>
  RONDO_INLINE static V apply(V a, V b) {
    return a & b;
  }
};

struct Or {
  static constexpr bool ordered = false;
  template <class Bits, class V>
  RONDO_INLINE static V apply(V a, V b) {
    return a | b;
  }
};

struct Xor {
  static constexpr bool ordered = false;
  template <class Bits, class V>
  RONDO_INLINE static V apply(V a, V b) {
    return a ^ b;
  }
};

struct Min {
  static constexpr bool ordered = true;
  template <class Bits, class V>
  RONDO_INLINE static V apply(V a, V b) {
    return a < b ? a : b;
  }
};

struct Max {
  static constexpr bool ordered = true;
  template <class Bits, class V>
  RONDO_INLINE static V apply(V a, V b) {
    return a > b ? a : b;
  }
};

// The comparison gives its second operand for two zeros and for NaN. So it is done in both orders,
// and the bits of both results are combined. Minimum: OR of +0 and -0 gives -0, and OR keeps the
// ones of a NaN's exponent. Maximum: AND gives +0, but it can destroy a NaN, which is put back.
struct FloatMin {
  static constexpr bool tame = true;
  template <class Bits, class V>
  RONDO_INLINE static V apply(V a, V b) {
    const V first = a < b ? a : b;
    const V second = b < a ? b : a;
    return cast<V>(cast<Bits>(first) | cast<Bits>(second));
  }
};

struct FloatMax {
  static constexpr bool tame = true;
  template <class Bits, class V>
  RONDO_INLINE static V apply(V a, V b) {
    const V first = a > b ? a : b;
    const V second = b > a ? b : a;
    const V most = cast<V>(cast<Bits>(first) & cast<Bits>(second));
    return ((a == a) & (b == b)) ? most : a + b;
  }
};

template <class T>
struct UnsignedOf;
template <>
struct UnsignedOf<std::int64_t> {
  using type = std::uint64_t;
};
template <>
struct UnsignedOf<std::uint64_t> {
  using type = std::uint64_t;
};
template <>
struct UnsignedOf<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<std::uint32_t> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<std::int16_t> {
  using type = std::uint16_t;
};
template <>
struct UnsignedOf<std::uint16_t> {
  using type = std::uint16_t;
};
template <>
struct UnsignedOf<std::int8_t> {
  using type = std::uint8_t;
};
template <>
struct UnsignedOf<std::uint8_t> {
  using type = std::uint8_t;
};
template <>
struct UnsignedOf<float> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<double> {
  using type = std::uint64_t;
};

// Integers are held as unsigned vector elements, whose arithmetic wraps, and compared as their own
// type.
template <class T, class M>
struct Integers {
  using Machine = M;
  using Scaling = NoScaling;
  using Lanes = Vector<typename UnsignedOf<T>::type, M>;
  static constexpr std::size_t element_bytes = sizeof(T);
  static constexpr std::size_t units_at_once = 4;
  Lanes value;

  RONDO_INLINE void load(const std::byte* from) { value = kernels::load<Lanes>(from); }
  RONDO_INLINE void store(std::byte* to) const { kernels::store(to, value); }
  template <class Op>
  RONDO_INLINE void combine(const Integers& other) {
    if constexpr (Op::ordered) {
      using Ordered = Vector<T, M>;
      value =
          cast<Lanes>(Op::template apply<Lanes>(cast<Ordered>(value), cast<Ordered>(other.value)));
    } else {
      value = Op::template apply<Lanes>(value, other.value);
    }
  }
  template <class Op>
  RONDO_INLINE void settle(const Scaling*) {}
};

// As with_one_nan() in elements.h.
template <class Bits, class V>
RONDO_INLINE V with_one_nan(V value) {
  return value == value ? value : cast<V>(~Bits{} >> 1);
}

template <class T, class M>
struct Floats {
  using Machine = M;
  using Scaling = FloatScaling<T, true>;
  using Lanes = Vector<T, M>;
  static constexpr std::size_t element_bytes = sizeof(T);
  static constexpr std::size_t units_at_once = 4;
  Lanes value;

  RONDO_INLINE void load(const std::byte* from) { value = kernels::load<Lanes>(from); }
  RONDO_INLINE void store(std::byte* to) const { kernels::store(to, value); }
  RONDO_INLINE void multiply(double factor) { value = value * static_cast<T>(factor); }
  template <class Op>
  RONDO_INLINE void combine(const Floats& other) {
    value = Op::template apply<Vector<typename UnsignedOf<T>::type, M>>(value, other.value);
  }
  template <class Op>
  RONDO_INLINE void settle(const Scaling* scaling) {
    if (scaling != nullptr) scaling->apply(value);
    value = with_one_nan<Vector<typename UnsignedOf<T>::type, M>>(value);
  }
};

// Short floats in `count` vectors of f32. Codec decodes and encodes them, and says what to do
// before and after a finish. Op::tame: results need no clamp before encoding, because sums, minima
// and maxima of short floats stay far below the largest f32.
template <class Codec, class M>
struct ShortFloats {
  using Machine = M;
  using Scaling = FloatScaling<float, false>;
  static constexpr std::size_t element_bytes = Codec::element_bytes;
  static constexpr std::size_t count = 4 / element_bytes;
  static constexpr std::size_t units_at_once = 4 / count;
  Vector<float, M> value[count];

  RONDO_INLINE void load(const std::byte* from) { Codec::decode(from, value); }
  RONDO_INLINE void store(std::byte* to) const { Codec::encode(to, value); }
  RONDO_INLINE void multiply(double factor) {
    const auto narrow = static_cast<float>(factor);
    for (std::size_t i = 0; i < count; ++i) value[i] = value[i] * narrow;
  }
  template <class Op>
  RONDO_INLINE void combine(const ShortFloats& other) {
    for (std::size_t i = 0; i < count; ++i)
      value[i] = Op::template apply<Vector<std::uint32_t, M>>(value[i], other.value[i]);
  }
  template <class Op>
  RONDO_INLINE void settle(const Scaling* scaling) {
    if (scaling != nullptr) {
      for (std::size_t i = 0; i < count; ++i) {
        value[i] = Codec::before_finish(value[i]);
        scaling->apply(value[i]);
        value[i] = Codec::after_finish(value[i]);
      }
    }
    if (!Op::tame || scaling != nullptr)
      for (std::size_t i = 0; i < count; ++i) value[i] = Codec::tamed(value[i]);
    for (std::size_t i = 0; i < count; ++i)
      value[i] = with_one_nan<Vector<std::uint32_t, M>>(value[i]);
  }
};

template <class Unit, class Op, std::size_t Units>
RONDO_INLINE void reduce_units(std::byte* out, const std::byte* const* in, std::size_t sources,
                               std::size_t at, const typename Unit::Scaling* scaling) {
  constexpr std::size_t width = Unit::Machine::bytes;
  Unit result[Units];
  for (std::size_t u = 0; u < Units; ++u) result[u].load(in[0] + at + u * width);
  for (std::size_t s = 1; s < sources; ++s) {
    for (std::size_t u = 0; u < Units; ++u) {
      Unit next;
      next.load(in[s] + at + u * width);
      result[u].template combine<Op>(next);
    }
  }
  for (std::size_t u = 0; u < Units; ++u) result[u].template settle<Op>(scaling);
  for (std::size_t u = 0; u < Units; ++u) result[u].store(out + at + u * width);
}

// Less than a register goes through copies of a full register, so that no byte past the end is
// touched.
template <class Unit, class Op>
RONDO_INLINE void reduce_rest(std::byte* out, const std::byte* const* in, std::size_t sources,
                              std::size_t at, std::size_t bytes,
                              const typename Unit::Scaling* scaling) {
  alignas(Unit::Machine::bytes) std::byte copy[Unit::Machine::bytes];
  Unit result;
  Unit::Machine::load_rest(copy, in[0] + at, bytes);
  result.load(copy);
  for (std::size_t s = 1; s < sources; ++s) {
    Unit next;
    Unit::Machine::load_rest(copy, in[s] + at, bytes);
    next.load(copy);
    result.template combine<Op>(next);
  }
  result.template settle<Op>(scaling);
  result.store(copy);
  store_rest(out + at, copy, bytes);
}

// Every block is loaded from all sources before it is stored, so out may be one of them.
template <class Unit, class Op>
void reduce(std::byte* out, const std::byte* const* in, std::size_t sources, std::size_t count,
            const Finish& finish) {
  constexpr std::size_t width = Unit::Machine::bytes;
  constexpr std::size_t stride = width * Unit::units_at_once;
  const std::size_t bytes = count * Unit::element_bytes;
  const typename Unit::Scaling plan(finish.multiply, finish.divide);
  const auto* const scaling = plan.needed() ? &plan : nullptr;
  std::size_t at = 0;
  if (sources == 2 && scaling == nullptr) {
    const std::byte* const pair[2] = {in[0], in[1]};
    for (; bytes - at >= stride; at += stride)
      reduce_units<Unit, Op, Unit::units_at_once>(out, pair, 2, at, nullptr);
  } else {
    for (; bytes - at >= stride; at += stride)
      reduce_units<Unit, Op, Unit::units_at_once>(out, in, sources, at, scaling);
  }
  for (; bytes - at >= width; at += width) reduce_units<Unit, Op, 1>(out, in, sources, at, scaling);
  if (at < bytes) reduce_rest<Unit, Op>(out, in, sources, at, bytes - at, scaling);
}

// Adds the products of sources and factors. load(unit, s, u) fills unit u from source s.
template <class Unit, std::size_t Units, class Load>
RONDO_INLINE void sum_products(Unit* result, const double* factors, std::size_t sources,
                               const typename Unit::Scaling* scaling, const Load& load) {
  for (std::size_t u = 0; u < Units; ++u) {
    load(result[u], 0, u);
    result[u].multiply(factors[0]);
  }
  for (std::size_t s = 1; s < sources; ++s) {
    for (std::size_t u = 0; u < Units; ++u) {
      Unit next;
      load(next, s, u);
      next.multiply(factors[s]);
      result[u].template combine<SumOfProducts>(next);
    }
  }
  for (std::size_t u = 0; u < Units; ++u) result[u].template settle<SumOfProducts>(scaling);
}

template <class Unit, std::size_t Units>
RONDO_INLINE void scale_units(std::byte* out, const std::byte* const* in, const double* factors,
                              std::size_t sources, std::size_t at,
                              const typename Unit::Scaling* scaling) {
  constexpr std::size_t width = Unit::Machine::bytes;
  Unit result[Units];
  sum_products<Unit, Units>(
      result, factors, sources, scaling,
      [&](Unit& unit, std::size_t s, std::size_t u) { unit.load(in[s] + at + u * width); });
  for (std::size_t u = 0; u < Units; ++u) result[u].store(out + at + u * width);
}

// Less than a register goes through copies of a full register, as in reduce_rest.
template <class Unit>
RONDO_INLINE void scale_rest(std::byte* out, const std::byte* const* in, const double* factors,
                             std::size_t sources, std::size_t at, std::size_t bytes,
                             const typename Unit::Scaling* scaling) {
  alignas(Unit::Machine::bytes) std::byte copy[Unit::Machine::bytes];
  Unit result;
  sum_products<Unit, 1>(&result, factors, sources, scaling,
                        [&](Unit& unit, std::size_t s, std::size_t) {
                          Unit::Machine::load_rest(copy, in[s] + at, bytes);
                          unit.load(copy);
                        });
  result.store(copy);
  store_rest(out + at, copy, bytes);
}

template <class Unit>
void scaled_sum(std::byte* out, const std::byte* const* in, const double* factors,
                std::size_t sources, std::size_t count, const Finish& finish) {
  constexpr std::size_t width = Unit::Machine::bytes;
  constexpr std::size_t stride = width * Unit::units_at_once;
  const std::size_t bytes = count * Unit::element_bytes;
  const typename Unit::Scaling plan(finish.multiply, finish.divide);
  const auto* const scaling = plan.needed() ? &plan : nullptr;
  std::size_t at = 0;
  if (sources == 2) {
    const std::byte* const pair[2] = {in[0], in[1]};
    const double both[2] = {factors[0], factors[1]};
    for (; bytes - at >= stride; at += stride)
      scale_units<Unit, Unit::units_at_once>(out, pair, both, 2, at, scaling);
  } else {
    for (; bytes - at >= stride; at += stride)
      scale_units<Unit, Unit::units_at_once>(out, in, factors, sources, at, scaling);
  }
  for (; bytes - at >= width; at += width)
    scale_units<Unit, 1>(out, in, factors, sources, at, scaling);
  if (at < bytes) scale_rest<Unit>(out, in, factors, sources, at, bytes - at, scaling);
}

template <class Unit, class ProductUnit = Unit>
ReduceFunction pick_float(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return &reduce<Unit, Sum>;
    case ReduceOp::product:
      return &reduce<ProductUnit, Product>;
    case ReduceOp::min:
      return &reduce<Unit, FloatMin>;
    case ReduceOp::max:
      return &reduce<Unit, FloatMax>;
    default:
      return nullptr;
  }
}

template <class Unit>
ReduceFunction pick_integer(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return &reduce<Unit, Sum>;
    case ReduceOp::product:
      return &reduce<Unit, Product>;
    case ReduceOp::min:
      return &reduce<Unit, Min>;
    case ReduceOp::max:
      return &reduce<Unit, Max>;
    case ReduceOp::bit_and:
      return &reduce<Unit, And>;
    case ReduceOp::bit_or:
      return &reduce<Unit, Or>;
    case ReduceOp::bit_xor:
      return &reduce<Unit, Xor>;
  }
  return nullptr;
}

}  // namespace
}  // namespace rondo::kernels

// SPDX-License-Identifier: Apache-2.0
//
// Elements in memory and vectors in registers. An instruction set is a struct Machine:
//   lanes                        f64 lanes of a register; f32 has twice as many
//   low(f), high(f)              f64 of either half of a register of f32
//   wide(h)                      f64 of as many f32
//   widen_half(h), narrow_half(f)  f16 lanes to f32 and back, rounded to nearest even
//   widen_bits(s), narrow_bits(b)  16-bit lanes to 32-bit ones and back, those below 2^16
//   where_nan(f, a, b)         a in the lanes where f is not a number, else b
//   total(d)                     the sum of the lanes
//   stream(to, v)                stores an aligned register past the cache
// (g++ 12 makes two halves and a shuffle of __builtin_convertvector, at half the speed.)
// Everything here is in an anonymous namespace and instantiates nothing of the standard library:
// otherwise the linker could use a function from here in place of the same one in another library,
// with instructions that the processor does not have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/short_floats.h"

#define RONDO_INLINE [[gnu::always_inline]] inline

namespace rondo::layer {
namespace {

template <class T, std::size_t Lanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Lanes * sizeof(T))));
};
template <class T, std::size_t Lanes>
using Vector = typename VectorOf<T, Lanes>::type;

// Elements as they lie in memory.
struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

template <class To, class From>
RONDO_INLINE To cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class V>
RONDO_INLINE V load(const void* from) {
  V value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// One element at a time, where vectors end.
RONDO_INLINE float widen(Half half) {
  return base::F16::decode(half.bits);
}
RONDO_INLINE float widen(Brain brain) {
  return base::BF16::decode(brain.bits);
}
RONDO_INLINE float widen(float value) {
  return value;
}
RONDO_INLINE double widen(double value) {
  return value;
}

RONDO_INLINE void narrow(float value, Half& half) {
  half.bits = static_cast<std::uint16_t>(base::F16::encode(value));
}
RONDO_INLINE void narrow(float value, Brain& brain) {
  brain.bits = static_cast<std::uint16_t>(base::BF16::encode(value));
}
RONDO_INLINE void narrow(float value, float& out) {
  out = value;
}
RONDO_INLINE void narrow(double value, double& out) {
  out = value;
}

// Types of the computation: `Number` for one element, `Register` for `step` of them.
template <class Machine, class T>
struct Computing {
  using Number = float;
  static constexpr std::size_t step = Machine::lanes * 2;
  using Register = Vector<float, step>;
};
template <class Machine>
struct Computing<Machine, double> {
  using Number = double;
  static constexpr std::size_t step = Machine::lanes;
  using Register = Vector<double, step>;
};

template <class Machine>
struct Registers {
  static constexpr std::size_t lanes = Machine::lanes;
  using F = Vector<float, lanes * 2>;
  using D = Vector<double, lanes>;
  using Short = Vector<std::uint16_t, lanes * 2>;
  using Bits = Vector<std::uint32_t, lanes * 2>;

  RONDO_INLINE static F read(const float* from) { return load<F>(from); }
  RONDO_INLINE static D read(const double* from) { return load<D>(from); }
  RONDO_INLINE static F read(const Half* from) { return Machine::widen_half(load<Short>(from)); }
  RONDO_INLINE static F read(const Brain* from) {
    return cast<F>(Machine::widen_bits(load<Short>(from)) << 16);
  }

  RONDO_INLINE static F packed(F value, const float*) { return value; }
  RONDO_INLINE static D packed(D value, const double*) { return value; }
  RONDO_INLINE static Short packed(F value, const Half*) { return Machine::narrow_half(value); }
  RONDO_INLINE static Short packed(F value, const Brain*) {
    const Bits bits = cast<Bits>(value), high = bits >> 16;
    const Bits rounded = (bits + 0x7fffu + (high & 1u)) >> 16;
    return Machine::narrow_bits(Machine::where_nan(value, high | 0x40u, rounded));
  }

  // Reads as many elements as two registers of f64 hold.
  template <class T>
  RONDO_INLINE static void read_wide(const T* from, D& first, D& second) {
    const F both = read(from);
    first = Machine::low(both);
    second = Machine::high(both);
  }
  RONDO_INLINE static void read_wide(const float* from, D& first, D& second) {
    using H = Vector<float, lanes>;
    first = Machine::wide(load<H>(from));
    second = Machine::wide(load<H>(from + lanes));
  }
  RONDO_INLINE static void read_wide(const double* from, D& first, D& second) {
    first = load<D>(from);
    second = load<D>(from + lanes);
  }
};

}  // namespace
}  // namespace rondo::layer

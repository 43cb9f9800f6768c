// SPDX-License-Identifier: Apache-2.0
//
// Converts a register of short floats, as they lie in memory, to vectors of f32 and back. Elements
// are not shuffled within the register: bf16 and f8 at even and odd index are decoded into
// different vectors (f8 first into even and odd f16), so nothing has to be shuffled back.
#pragma once

#include "collectives/kernels/vector.h"

namespace rondo::kernels {
namespace {

// The defaults: a codec that changes nothing before and after a finish.
template <class M>
struct PlainCodec {
  using F32 = Vector<float, M>;
  RONDO_INLINE static F32 before_finish(F32 value) { return value; }
  RONDO_INLINE static F32 after_finish(F32 value) { return value; }
  RONDO_INLINE static F32 tamed(F32 value) { return value; }
};

template <class M>
struct HalfCodec : PlainCodec<M> {
  static constexpr std::size_t element_bytes = 2;
  using F32 = Vector<float, M>;

  RONDO_INLINE static void decode(const std::byte* from, F32* value) {
    M::widen_half(load<Vector<std::uint16_t, M>>(from), value[0], value[1]);
  }
  RONDO_INLINE static void encode(std::byte* to, const F32* value) {
    store(to, M::narrow_half(value[0], value[1]));
  }
};

template <class M>
struct BFloatCodec : PlainCodec<M> {
  static constexpr std::size_t element_bytes = 2;
  using F32 = Vector<float, M>;
  using U32 = Vector<std::uint32_t, M>;

  RONDO_INLINE static void decode(const std::byte* from, F32* value) {
    const U32 raw = load<U32>(from);
    value[0] = cast<F32>(raw << 16);
    value[1] = cast<F32>(raw & 0xffff0000u);
  }
  RONDO_INLINE static void encode(std::byte* to, const F32* value) {
    store(to, (rounded(value[0]) >> 16) | (rounded(value[1]) & 0xffff0000u));
  }
  // The code is the upper half of each vector element.
  RONDO_INLINE static U32 rounded(F32 value) {
    const U32 bits = cast<U32>(value);
    const U32 nearest = bits + ((bits >> 16) & 1u) + 0x7fffu;
    return value == value ? nearest : bits | 0x00400000u;
  }
};

// Rounds f32 to nearest even, to MantissaBits and to the subnormals below 2^LeastExponent; the
// result is still an f32. Adding 1.5 * 2^k moves the last bit to keep into the last place. Correct
// for infinity, NaN and values below 2^100.
template <class M, int MantissaBits, int LeastExponent>
RONDO_INLINE Vector<float, M> round_mantissa(Vector<float, M> value) {
  using F32 = Vector<float, M>;
  using I32 = Vector<std::int32_t, M>;
  using U32 = Vector<std::uint32_t, M>;
  const I32 least = I32{} + ((127 + LeastExponent) << 23);
  const I32 exponent = cast<I32>(cast<U32>(value) & 0x7f800000u);
  const U32 clamped = cast<U32>(exponent > least ? exponent : least);
  const F32 shifter = cast<F32>(clamped + (((23u - MantissaBits) << 23) + 0x00400000u));
  const F32 result = (value + shifter) - shifter;
  return cast<F32>(cast<U32>(result) | (cast<U32>(value) & 0x80000000u));
}

template <class M>
struct EightBitCodec : PlainCodec<M> {
  static constexpr std::size_t element_bytes = 1;
  using F32 = Vector<float, M>;
  using U16 = Vector<std::uint16_t, M>;
  using U8 = Vector<std::uint8_t, M>;

  // Clamps to 2^20, which is beyond any f8 and small enough for round_mantissa. NaN stays NaN.
  RONDO_INLINE static F32 tamed(F32 value) {
    const F32 most = F32{} + 1048576.0f;
    const F32 below = most < value ? most : value;
    return -most > below ? -most : below;
  }
};

// An f8e5m2 is the upper byte of an f16.
template <class M>
struct F8E5M2Codec : EightBitCodec<M> {
  using typename EightBitCodec<M>::F32;
  using typename EightBitCodec<M>::U16;

  RONDO_INLINE static void decode(const std::byte* from, F32* value) {
    const U16 raw = load<U16>(from);
    M::widen_half(raw << 8, value[0], value[1]);
    M::widen_half(raw & 0xff00u, value[2], value[3]);
  }
  RONDO_INLINE static void encode(std::byte* to, const F32* value) {
    const U16 even =
        M::narrow_half(round_mantissa<M, 2, -14>(value[0]), round_mantissa<M, 2, -14>(value[1]));
    const U16 odd =
        M::narrow_half(round_mantissa<M, 2, -14>(value[2]), round_mantissa<M, 2, -14>(value[3]));
    store(to, (even >> 8) | (odd & 0xff00u));
  }
};

// The bits of an f8e4m3, shifted up by seven, are an f16 of 1/256 of the value; this holds for
// subnormals too. NaN (all ones) gets the exponent of an f16 NaN. Sums, minima and maxima are
// computed on these smaller numbers, with the same rounding. Products and sums with factors need
// Exact, which restores the value.
template <class M, bool Exact>
struct F8E4M3Codec : EightBitCodec<M> {
  using typename EightBitCodec<M>::F32;
  using typename EightBitCodec<M>::U16;
  using typename EightBitCodec<M>::U8;

  RONDO_INLINE static void decode(const std::byte* from, F32* value) {
    const U16 raw = load<U16>(from);
    const U8 magnitude = cast<U8>(raw & 0x7f7fu);
    const U16 code = cast<U16>(magnitude | ((magnitude + 1) & 0x80));
    M::widen_half(((code << 7) & 0x7f80u) | ((raw << 8) & 0x8000u), value[0], value[1]);
    M::widen_half(((code >> 1) & 0x7f80u) | (raw & 0x8000u), value[2], value[3]);
    if constexpr (Exact)
      for (std::size_t i = 0; i < 4; ++i) value[i] = value[i] * 256.0f;
  }
  RONDO_INLINE static void encode(std::byte* to, const F32* value) {
    F32 rounded[4];
    for (std::size_t i = 0; i < 4; ++i)
      rounded[i] = round_mantissa<M, 3, -14>(Exact ? value[i] * (1.0f / 256) : value[i]);
    const U16 even = code_of(M::narrow_half(rounded[0], rounded[1]));
    const U16 odd = code_of(M::narrow_half(rounded[2], rounded[3]));
    store(to, (even >> 8) | (odd & 0xff00u));
  }
  RONDO_INLINE static F32 before_finish(F32 value) { return Exact ? value : value * 256.0f; }
  RONDO_INLINE static F32 after_finish(F32 value) { return Exact ? value : value * (1.0f / 256); }
  // The code is the upper byte of each vector element.
  RONDO_INLINE static U16 code_of(U16 half) {
    const U16 magnitude = half & 0x7fffu;
    const U16 most = U16{} + 0x3f80u;
    return ((magnitude < most ? magnitude : most) << 1) | (half & 0x8000u);
  }
};

template <class M>
ScaledSum pick_scaled_sum(DType type) noexcept {
  switch (type) {
    case DType::f64:
      return &scaled_sum<Floats<double, M>>;
    case DType::f32:
      return &scaled_sum<Floats<float, M>>;
    case DType::f16:
      return &scaled_sum<ShortFloats<HalfCodec<M>, M>>;
    case DType::bf16:
      return &scaled_sum<ShortFloats<BFloatCodec<M>, M>>;
    case DType::f8e4m3:
      return &scaled_sum<ShortFloats<F8E4M3Codec<M, true>, M>>;
    case DType::f8e5m2:
      return &scaled_sum<ShortFloats<F8E5M2Codec<M>, M>>;
    default:
      return nullptr;
  }
}

template <class M>
ReduceFunction pick_kernel(DType type, ReduceOp op) noexcept {
  switch (type) {
    case DType::f64:
      return pick_float<Floats<double, M>>(op);
    case DType::f32:
      return pick_float<Floats<float, M>>(op);
    case DType::f16:
      return pick_float<ShortFloats<HalfCodec<M>, M>>(op);
    case DType::bf16:
      return pick_float<ShortFloats<BFloatCodec<M>, M>>(op);
    case DType::f8e4m3:
      return pick_float<ShortFloats<F8E4M3Codec<M, false>, M>,
                        ShortFloats<F8E4M3Codec<M, true>, M>>(op);
    case DType::f8e5m2:
      return pick_float<ShortFloats<F8E5M2Codec<M>, M>>(op);
    case DType::i64:
      return pick_integer<Integers<std::int64_t, M>>(op);
    case DType::u64:
      return pick_integer<Integers<std::uint64_t, M>>(op);
    case DType::i32:
      return pick_integer<Integers<std::int32_t, M>>(op);
    case DType::u32:
      return pick_integer<Integers<std::uint32_t, M>>(op);
    case DType::i8:
      return pick_integer<Integers<std::int8_t, M>>(op);
    case DType::u8:
      return pick_integer<Integers<std::uint8_t, M>>(op);
    case DType::i16:
      return pick_integer<Integers<std::int16_t, M>>(op);
    case DType::u16:
      return pick_integer<Integers<std::uint16_t, M>>(op);
  }
  return nullptr;
}

}  // namespace
}  // namespace rondo::kernels

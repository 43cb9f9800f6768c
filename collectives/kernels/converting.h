// SPDX-License-Identifier: Apache-2.0
//
// Conversions between f32 and the other floating-point types. Unlike in codecs.h, elements keep
// their order: short ones are widened to vector elements of the next wider type.
#pragma once

#include "collectives/kernels/codecs.h"

namespace rondo::kernels {
namespace {

template <class T, class M>
using HalfVector = typename VectorOf<T, M::bytes / 2>::type;

// Common to all types: a step converts `elements` elements to two vectors of f32, or back.
template <class M>
struct Lanes {
  using F32 = Vector<float, M>;
  using U16 = Vector<std::uint16_t, M>;
  using U32 = Vector<std::uint32_t, M>;
  static constexpr std::size_t elements = 2 * M::bytes / 4;
};

template <class M>
struct Doubles : Lanes<M> {
  using typename Lanes<M>::F32;
  using F64 = Vector<double, M>;
  using HalfF32 = HalfVector<float, M>;
  static constexpr std::size_t element_bytes = 8;

  RONDO_INLINE static void decode(const std::byte* from, std::byte* to) {
    for (std::size_t i = 0; i < 4; ++i)
      store(to + i * sizeof(HalfF32),
            __builtin_convertvector(load<F64>(from + i * sizeof(F64)), HalfF32));
  }
  RONDO_INLINE static void encode(const std::byte* from, std::byte* to) {
    for (std::size_t i = 0; i < 4; ++i)
      store(to + i * sizeof(F64),
            __builtin_convertvector(load<HalfF32>(from + i * sizeof(HalfF32)), F64));
  }
};

// One register of f16 to or from two of f32.
template <class M>
struct Halves : Lanes<M> {
  using typename Lanes<M>::F32;
  using typename Lanes<M>::U16;
  static constexpr std::size_t element_bytes = 2;

  RONDO_INLINE static void decode(const std::byte* from, std::byte* to) {
    widen(load<U16>(from), to);
  }
  RONDO_INLINE static void encode(const std::byte* from, std::byte* to) {
    store(to, M::narrow_half(load<F32>(from), load<F32>(from + sizeof(F32))));
  }
  RONDO_INLINE static void widen(U16 halves, std::byte* to, float multiply = 1) {
    F32 low, high;
    M::widen_half(halves, low, high);
    store(to, low * multiply);
    store(to + sizeof(F32), high * multiply);
  }
};

template <class M>
struct BFloats : Lanes<M> {
  using typename Lanes<M>::F32;
  using typename Lanes<M>::U32;
  using HalfU16 = HalfVector<std::uint16_t, M>;
  static constexpr std::size_t element_bytes = 2;

  RONDO_INLINE static void decode(const std::byte* from, std::byte* to) {
    for (std::size_t i = 0; i < 2; ++i) {
      const HalfU16 raw = load<HalfU16>(from + i * sizeof(HalfU16));
      store(to + i * sizeof(F32), __builtin_convertvector(raw, U32) << 16);
    }
  }
  RONDO_INLINE static void encode(const std::byte* from, std::byte* to) {
    store(to, M::narrow_words(rounded(from), rounded(from + sizeof(F32))));
  }

 private:
  RONDO_INLINE static U32 rounded(const std::byte* from) {
    return BFloatCodec<M>::rounded(load<F32>(from)) >> 16;
  }
};

// f8 by way of f16, as in codecs.h. Format::half_of makes f16 of f8 codes widened to 16 bits.
// Format::code_of makes f8 codes of f16, each in the upper byte of its vector element.
template <class M, class Format>
struct Bytes : Lanes<M> {
  using typename Lanes<M>::F32;
  using typename Lanes<M>::U16;
  using HalfU8 = HalfVector<std::uint8_t, M>;
  static constexpr std::size_t element_bytes = 1;

  RONDO_INLINE static void decode(const std::byte* from, std::byte* to) {
    Halves<M>::widen(Format::half_of(__builtin_convertvector(load<HalfU8>(from), U16)), to,
                     Format::unit);
  }
  RONDO_INLINE static void encode(const std::byte* from, std::byte* to) {
    const U16 half = M::narrow_half(rounded(from), rounded(from + sizeof(F32)));
    store(to, M::narrow_bytes(Format::code_of(half) >> 8));
  }

 private:
  RONDO_INLINE static F32 rounded(const std::byte* from) {
    const F32 tame = EightBitCodec<M>::tamed(load<F32>(from));
    return round_mantissa<M, Format::mantissa_bits, -14>(tame * (1 / Format::unit));
  }
};

template <class M>
struct E5M2 {
  using U16 = Vector<std::uint16_t, M>;
  static constexpr int mantissa_bits = 2;
  static constexpr float unit = 1;
  RONDO_INLINE static U16 half_of(U16 code) { return code << 8; }
  RONDO_INLINE static U16 code_of(U16 half) { return half; }
};

template <class M>
struct E4M3 {
  using U16 = Vector<std::uint16_t, M>;
  static constexpr int mantissa_bits = 3;
  static constexpr float unit = 256;
  RONDO_INLINE static U16 half_of(U16 code) {
    const U16 magnitude = code & 0x7fu;
    return ((magnitude | ((magnitude + 1u) & 0x80u)) << 7) | ((code & 0x80u) << 8);
  }
  RONDO_INLINE static U16 code_of(U16 half) { return F8E4M3Codec<M, true>::code_of(half); }
};

// Decoding converts to f32, encoding from f32.
template <class Type>
struct Decoding {
  static constexpr std::size_t in_bytes = Type::element_bytes, out_bytes = 4,
                               elements = Type::elements;
  RONDO_INLINE static void step(const std::byte* in, std::byte* out) { Type::decode(in, out); }
};

template <class Type>
struct Encoding {
  static constexpr std::size_t in_bytes = 4, out_bytes = Type::element_bytes,
                               elements = Type::elements;
  RONDO_INLINE static void step(const std::byte* in, std::byte* out) { Type::encode(in, out); }
};

template <class Conversion>
void convert(std::byte* out, const std::byte* in, std::size_t count) {
  constexpr std::size_t in_step = Conversion::elements * Conversion::in_bytes;
  constexpr std::size_t out_step = Conversion::elements * Conversion::out_bytes;
  for (; count >= Conversion::elements;
       count -= Conversion::elements, in += in_step, out += out_step)
    Conversion::step(in, out);
  if (count == 0) return;
  // The rest goes through copies of a full step, so that no byte past the end is touched.
  std::byte whole_in[in_step] = {}, whole_out[out_step];
  std::memcpy(whole_in, in, count * Conversion::in_bytes);
  Conversion::step(whole_in, whole_out);
  std::memcpy(out, whole_out, count * Conversion::out_bytes);
}

template <class Type>
ConvertFunction pick_direction(bool encoding) noexcept {
  return encoding ? &convert<Encoding<Type>> : &convert<Decoding<Type>>;
}

template <class M>
ConvertFunction pick_conversion(DType from, DType to) noexcept {
  const bool encoding = from == DType::f32;
  if (!encoding && to != DType::f32) return nullptr;
  switch (encoding ? to : from) {
    case DType::f64:
      return pick_direction<Doubles<M>>(encoding);
    case DType::f16:
      return pick_direction<Halves<M>>(encoding);
    case DType::bf16:
      return pick_direction<BFloats<M>>(encoding);
    case DType::f8e4m3:
      return pick_direction<Bytes<M, E4M3<M>>>(encoding);
    case DType::f8e5m2:
      return pick_direction<Bytes<M, E5M2<M>>>(encoding);
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace rondo::kernels

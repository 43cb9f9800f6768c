// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 F, BW, VL and DQ: what every server processor with AVX-512 has.
#include <immintrin.h>

#include "collectives/kernels/codecs.h"
#include "collectives/kernels/converting.h"

namespace rondo::kernels {
namespace {

struct Avx512 {
  static constexpr std::size_t bytes = 64;
  using F32 = VectorOf<float, bytes>::type;
  using U16 = VectorOf<std::uint16_t, bytes>::type;
  using U32 = VectorOf<std::uint32_t, bytes>::type;
  using HalfU8 = VectorOf<std::uint8_t, bytes / 2>::type;

  RONDO_INLINE static void widen_half(U16 halves, F32& low, F32& high) {
    low = (F32)_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)halves));
    high = (F32)_mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)halves, 1));
  }
  RONDO_INLINE static U16 narrow_half(F32 low, F32 high) {
    const __m256i first = _mm512_cvtps_ph((__m512)low, _MM_FROUND_TO_NEAREST_INT);
    const __m256i second = _mm512_cvtps_ph((__m512)high, _MM_FROUND_TO_NEAREST_INT);
    return (U16)_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
  }
  RONDO_INLINE static U16 narrow_words(U32 low, U32 high) {
    const __m256i first = _mm512_cvtepi32_epi16((__m512i)low);
    return (U16)_mm512_inserti64x4(_mm512_castsi256_si512(first),
                                   _mm512_cvtepi32_epi16((__m512i)high), 1);
  }
  RONDO_INLINE static HalfU8 narrow_bytes(U16 words) {
    return (HalfU8)_mm512_cvtepi16_epi8((__m512i)words);
  }
  RONDO_INLINE static void load_rest(std::byte* to, const std::byte* from, std::size_t rest) {
    const __mmask64 mask = (std::uint64_t{1} << rest) - 1;
    _mm512_store_si512(to, _mm512_maskz_loadu_epi8(mask, from));
  }
};

}  // namespace

ReduceFunction avx512_kernel(DType type, ReduceOp op) noexcept {
  return pick_kernel<Avx512>(type, op);
}

ScaledSum avx512_scaled_sum(DType type) noexcept {
  return pick_scaled_sum<Avx512>(type);
}

ConvertFunction avx512_convert(DType from, DType to) noexcept {
  return pick_conversion<Avx512>(from, to);
}

}  // namespace rondo::kernels

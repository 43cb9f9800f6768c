// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 F, BW, VL and DQ.
#include <immintrin.h>

#include "bn/layer/kernels/pick.h"

namespace rondo::layer {
namespace {

struct Avx512 {
  static constexpr std::size_t lanes = 8;
  using F = Vector<float, 16>;
  using H = Vector<float, 8>;
  using D = Vector<double, 8>;
  using Bits = Vector<std::uint32_t, 16>;
  using Short = Vector<std::uint16_t, 16>;

  RONDO_INLINE static D low(F value) {
    return cast<D>(_mm512_cvtps_pd(_mm512_castps512_ps256(cast<__m512>(value))));
  }
  RONDO_INLINE static D high(F value) {
    return cast<D>(_mm512_cvtps_pd(_mm512_extractf32x8_ps(cast<__m512>(value), 1)));
  }
  RONDO_INLINE static D wide(H value) { return cast<D>(_mm512_cvtps_pd(cast<__m256>(value))); }
  RONDO_INLINE static Bits widen_bits(Short bits) {
    return cast<Bits>(_mm512_cvtepu16_epi32(cast<__m256i>(bits)));
  }
  RONDO_INLINE static Short narrow_bits(Bits bits) {
    return cast<Short>(_mm512_cvtepi32_epi16(cast<__m512i>(bits)));
  }
  RONDO_INLINE static F widen_half(Short halves) {
    return cast<F>(_mm512_cvtph_ps(cast<__m256i>(halves)));
  }
  RONDO_INLINE static Short narrow_half(F value) {
    return cast<Short>(_mm512_cvtps_ph(cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
  }
  RONDO_INLINE static Bits where_nan(F value, Bits nan, Bits other) {
    const __mmask16 lanes_of_nan =
        _mm512_cmp_ps_mask(cast<__m512>(value), cast<__m512>(value), _CMP_UNORD_Q);
    return cast<Bits>(
        _mm512_mask_mov_epi32(cast<__m512i>(other), lanes_of_nan, cast<__m512i>(nan)));
  }
  RONDO_INLINE static double total(D value) { return _mm512_reduce_add_pd(cast<__m512d>(value)); }
  static void fence() { _mm_sfence(); }
  template <class V>
  RONDO_INLINE static void stream(void* to, V value) {
    if constexpr (sizeof value == 64)
      _mm512_stream_si512(static_cast<__m512i*>(to), cast<__m512i>(value));
    else
      _mm256_stream_si256(static_cast<__m256i*>(to), cast<__m256i>(value));
  }
};

}  // namespace

const Kernels& avx512_kernels(DType type) noexcept {
  return pick<Avx512>(type);
}

}  // namespace rondo::layer

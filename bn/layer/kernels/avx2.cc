// SPDX-License-Identifier: Apache-2.0
//
// AVX2 with FMA and F16C.
#include <immintrin.h>

#include "bn/layer/kernels/pick.h"

namespace rondo::layer {
namespace {

struct Avx2 {
  static constexpr std::size_t lanes = 4;
  using F = Vector<float, 8>;
  using H = Vector<float, 4>;
  using D = Vector<double, 4>;
  using Bits = Vector<std::uint32_t, 8>;
  using Short = Vector<std::uint16_t, 8>;

  RONDO_INLINE static D low(F value) {
    return cast<D>(_mm256_cvtps_pd(_mm256_castps256_ps128(cast<__m256>(value))));
  }
  RONDO_INLINE static D high(F value) {
    return cast<D>(_mm256_cvtps_pd(_mm256_extractf128_ps(cast<__m256>(value), 1)));
  }
  RONDO_INLINE static D wide(H value) { return cast<D>(_mm256_cvtps_pd(cast<__m128>(value))); }
  RONDO_INLINE static Bits widen_bits(Short bits) {
    return cast<Bits>(_mm256_cvtepu16_epi32(cast<__m128i>(bits)));
  }
  RONDO_INLINE static Short narrow_bits(Bits bits) {
    const __m256i all = cast<__m256i>(bits);
    return cast<Short>(
        _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
  }
  RONDO_INLINE static F widen_half(Short halves) {
    return cast<F>(_mm256_cvtph_ps(cast<__m128i>(halves)));
  }
  RONDO_INLINE static Short narrow_half(F value) {
    return cast<Short>(_mm256_cvtps_ph(cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
  }
  RONDO_INLINE static Bits where_nan(F value, Bits nan, Bits other) {
    const __m256 lanes_of_nan =
        _mm256_cmp_ps(cast<__m256>(value), cast<__m256>(value), _CMP_UNORD_Q);
    return cast<Bits>(_mm256_blendv_ps(cast<__m256>(other), cast<__m256>(nan), lanes_of_nan));
  }
  RONDO_INLINE static double total(D value) {
    return (value[0] + value[2]) + (value[1] + value[3]);
  }
  static void fence() { _mm_sfence(); }
  template <class V>
  RONDO_INLINE static void stream(void* to, V value) {
    if constexpr (sizeof value == 32)
      _mm256_stream_si256(static_cast<__m256i*>(to), cast<__m256i>(value));
    else
      _mm_stream_si128(static_cast<__m128i*>(to), cast<__m128i>(value));
  }
};

}  // namespace

const Kernels& avx2_kernels(DType type) noexcept {
  return pick<Avx2>(type);
}

}  // namespace rondo::layer

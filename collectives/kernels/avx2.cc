// SPDX-License-Identifier: Apache-2.0
//
// AVX2 with F16C.
#include <immintrin.h>

#include "collectives/kernels/codecs.h"
#include "collectives/kernels/converting.h"

namespace rondo::kernels {
namespace {

struct Avx2 {
  static constexpr std::size_t bytes = 32;
  using F32 = VectorOf<float, bytes>::type;
  using U16 = VectorOf<std::uint16_t, bytes>::type;
  using U32 = VectorOf<std::uint32_t, bytes>::type;
  using HalfU8 = VectorOf<std::uint8_t, bytes / 2>::type;

  RONDO_INLINE static void widen_half(U16 halves, F32& low, F32& high) {
    low = (F32)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)halves));
    high = (F32)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)halves, 1));
  }
  RONDO_INLINE static U16 narrow_half(F32 low, F32 high) {
    const __m128i first = _mm256_cvtps_ph((__m256)low, _MM_FROUND_TO_NEAREST_INT);
    const __m128i second = _mm256_cvtps_ph((__m256)high, _MM_FROUND_TO_NEAREST_INT);
    return (U16)_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
  }
  // The packing instructions work on each half of a register by itself; the permutation (0xd8) puts
  // the quarters in order.
  RONDO_INLINE static U16 narrow_words(U32 low, U32 high) {
    return (U16)_mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)low, (__m256i)high), 0xd8);
  }
  RONDO_INLINE static HalfU8 narrow_bytes(U16 words) {
    const __m256i packed = _mm256_packus_epi16((__m256i)words, (__m256i)words);
    return (HalfU8)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0xd8));
  }
  // Masked loads take whole words.
  RONDO_INLINE static void load_rest(std::byte* to, const std::byte* from, std::size_t rest) {
    if (rest % sizeof(std::int32_t) != 0) {
      std::memset(to, 0, bytes);
      return store_rest(to, from, rest);
    }
    alignas(bytes) static constexpr std::int32_t masks[2 * bytes / sizeof(std::int32_t)] = {
        -1, -1, -1, -1, -1, -1, -1, -1};
    const auto* const mask = masks + (bytes - rest) / sizeof(std::int32_t);
    const __m256i words =
        _mm256_maskload_epi32(reinterpret_cast<const int*>(from),
                              _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(mask)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), words);
  }
};

}  // namespace

ReduceFunction avx2_kernel(DType type, ReduceOp op) noexcept {
  return pick_kernel<Avx2>(type, op);
}

ScaledSum avx2_scaled_sum(DType type) noexcept {
  return pick_scaled_sum<Avx2>(type);
}

ConvertFunction avx2_convert(DType from, DType to) noexcept {
  return pick_conversion<Avx2>(from, to);
}

}  // namespace rondo::kernels

// SPDX-License-Identifier: Apache-2.0
//
// What every processor has: the compiler makes of these short vectors what it can.
#include "bn/kernels/pick.h"

namespace rondo::bn {
namespace {

struct Scalar {
  static constexpr std::size_t lanes = 2;
  using F = Vector<float, 4>;
  using H = Vector<float, 2>;
  using Short = Vector<std::uint16_t, 4>;

  RONDO_INLINE static H low(F value) { return H{value[0], value[1]}; }
  RONDO_INLINE static H high(F value) { return H{value[2], value[3]}; }
  RONDO_INLINE static F widen_half(Short halves) {
    F result{};
    for (int i = 0; i < 4; ++i) result[i] = widen(Half{halves[i]});
    return result;
  }
  RONDO_INLINE static Short narrow_half(F value) {
    Short result{};
    for (int i = 0; i < 4; ++i) {
      Half half;
      narrow(value[i], half);
      result[i] = half.bits;
    }
    return result;
  }
  static void fence() {}
  template <class V>
  RONDO_INLINE static void stream(void* to, V value) {
    std::memcpy(to, &value, sizeof value);
  }
};

}  // namespace

const Kernels& scalar_kernels(DType type) noexcept {
  return pick<Scalar>(type);
}

}  // namespace rondo::bn

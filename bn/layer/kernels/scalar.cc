// SPDX-License-Identifier: Apache-2.0
//
// Kernels for every processor: short vectors, which the compiler compiles to what the target has.
#include "bn/layer/kernels/pick.h"

namespace rondo::layer {
namespace {

struct Scalar {
  static constexpr std::size_t lanes = 2;
  using F = Vector<float, 4>;
  using H = Vector<float, 2>;
  using D = Vector<double, 2>;
  using Bits = Vector<std::uint32_t, 4>;
  using Short = Vector<std::uint16_t, 4>;

  RONDO_INLINE static D low(F value) { return D{value[0], value[1]}; }
  RONDO_INLINE static D high(F value) { return D{value[2], value[3]}; }
  RONDO_INLINE static D wide(H value) { return D{value[0], value[1]}; }
  RONDO_INLINE static Bits widen_bits(Short bits) { return __builtin_convertvector(bits, Bits); }
  RONDO_INLINE static Short narrow_bits(Bits bits) { return __builtin_convertvector(bits, Short); }
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
  RONDO_INLINE static Bits where_nan(F value, Bits nan, Bits other) {
    const Bits lanes_of_nan = cast<Bits>(value != value);
    return (nan & lanes_of_nan) | (other & ~lanes_of_nan);
  }
  RONDO_INLINE static double total(D value) { return value[0] + value[1]; }
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

}  // namespace rondo::layer

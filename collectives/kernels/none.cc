// SPDX-License-Identifier: Apache-2.0
//
// For processors that are not x86-64: the scalar kernels serve every type.
#include "collectives/kernels/table.h"

namespace rondo::kernels {

ReduceFunction avx2_kernel(DType, ReduceOp) noexcept {
  return nullptr;
}
ReduceFunction avx512_kernel(DType, ReduceOp) noexcept {
  return nullptr;
}
ScaledSum avx2_scaled_sum(DType) noexcept {
  return nullptr;
}
ScaledSum avx512_scaled_sum(DType) noexcept {
  return nullptr;
}
ConvertFunction avx2_convert(DType, DType) noexcept {
  return nullptr;
}
ConvertFunction avx512_convert(DType, DType) noexcept {
  return nullptr;
}

}  // namespace rondo::kernels

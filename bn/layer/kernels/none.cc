// SPDX-License-Identifier: Apache-2.0
//
// For processors of other families: the scalar kernels serve every type.
#include "bn/layer/kernels/table.h"

namespace rondo::layer {

const Kernels& avx2_kernels(DType type) noexcept {
  return scalar_kernels(type);
}
const Kernels& avx512_kernels(DType type) noexcept {
  return scalar_kernels(type);
}

}  // namespace rondo::layer

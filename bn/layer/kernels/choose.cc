// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/kernels/table.h"

namespace rondo::layer {

const Kernels& kernels_of(base::Isa isa, DType type) noexcept {
  if (isa == base::Isa::avx512) return avx512_kernels(type);
  return isa == base::Isa::avx2 ? avx2_kernels(type) : scalar_kernels(type);
}

const Kernels& best_kernels(DType type) noexcept {
  return kernels_of(base::best_isa(), type);
}

}  // namespace rondo::layer

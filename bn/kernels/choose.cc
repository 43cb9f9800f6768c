// SPDX-License-Identifier: Apache-2.0
//
// Where there is one set of kernels only.
#include "bn/kernels/table.h"

namespace rondo::bn {

Isa best_isa() noexcept {
  return Isa::scalar;
}

const Kernels& kernels_of(Isa, DType type) noexcept {
  return scalar_kernels(type);
}

}  // namespace rondo::bn

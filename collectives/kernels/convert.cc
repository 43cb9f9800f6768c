// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/convert.h"

#include "collectives/kernels/table.h"

namespace rondo::kernels {

ConvertFunction find_convert(DType from, DType to, Isa isa) noexcept {
  if (find_reduce(DType::f32, ReduceOp::sum, isa) == nullptr) return nullptr;
  switch (isa) {
    case Isa::scalar:
      return kernels::scalar_convert(from, to);
    case Isa::avx2:
      return kernels::avx2_convert(from, to);
    case Isa::avx512:
      return kernels::avx512_convert(from, to);
  }
  return nullptr;
}

}  // namespace rondo::kernels

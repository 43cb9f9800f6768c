// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/convert.h"

#include "collectives/kernels/table.h"

namespace rondo::kernels {

ConvertFunction find_convert(DType from, DType to, base::Isa isa) noexcept {
  if (find_reduce(DType::f32, ReduceOp::sum, isa) == nullptr) return nullptr;
  switch (isa) {
    case base::Isa::scalar:
      return scalar_convert(from, to);
    case base::Isa::avx2:
      return avx2_convert(from, to);
    case base::Isa::avx512:
      return avx512_convert(from, to);
  }
  return nullptr;
}

}  // namespace rondo::kernels

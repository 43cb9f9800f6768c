// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/reduce.h"

#include "collectives/kernels/integer_mean.h"
#include "collectives/kernels/table.h"

namespace rondo::kernels {

ReduceFunction find_reduce(DType type, ReduceOp op, base::Isa isa) noexcept {
  if (!supports(type, op) || isa > base::processor_isa()) return nullptr;
  if (const IntegerMean* const mean = find_integer_mean(type, op)) return mean->reduce;
  switch (isa) {
    case base::Isa::scalar:
      return scalar_kernel(type, op);
    case base::Isa::avx2:
      return avx2_kernel(type, op);
    case base::Isa::avx512:
      return avx512_kernel(type, op);
  }
  return nullptr;
}

ScaledSum find_scaled_sum(DType type, base::Isa isa) noexcept {
  if (isa > base::processor_isa()) return nullptr;
  switch (isa) {
    case base::Isa::scalar:
      return scalar_scaled_sum(type);
    case base::Isa::avx2:
      return avx2_scaled_sum(type);
    case base::Isa::avx512:
      return avx512_scaled_sum(type);
  }
  return nullptr;
}

}  // namespace rondo::kernels

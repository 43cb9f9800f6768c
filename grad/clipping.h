// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of clipping, for the processor and for GPUs: both give the same bits.
#pragma once

#include <math.h>

#include "base/host_device.h"

namespace rondo::grad {
namespace {

// As PyTorch's clip_grad_norm_. NaN where the norm is NaN.
RONDO_HD inline double clip_factor_of(double norm, double max_norm) noexcept {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

// What clip() multiplies by, from the sum of all squares: 1 where that is infinite or NaN, because
// no factor repairs that.
RONDO_HD inline double clip_factor_of_squares(double squares, double max_norm) noexcept {
  const double norm = ::sqrt(squares);
  return norm <= 0x1.fffffffffffffp1023 ? clip_factor_of(norm, max_norm) : 1;
}

}  // namespace
}  // namespace rondo::grad

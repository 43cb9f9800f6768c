// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/host_device.h"

namespace rondo::kernels {

// Applied once to a finished result, before it is rounded to the element type: value * multiply /
// divide, in f64 for f64 and f32 results, in f32 for the shorter floats. The mean of integers uses
// divide, from 1 to 2^31 - 1; other results of integers are not changed.
struct Finish {
  double multiply = 1;
  double divide = 1;
  RONDO_HD bool needed() const noexcept { return multiply != 1 || divide != 1; }
};

}  // namespace rondo::kernels

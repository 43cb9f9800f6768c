// SPDX-License-Identifier: Apache-2.0
//
// The entry points of the kernels.
#include "device/entry.cuh"
#include "grad/device/kernels.h"

namespace rondo::grad {

RONDO_GRAD_KERNELS(RONDO_ENTRY)

}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
//
// The entry points of the kernels.
#include "bn/layer/device/kernels.h"
#include "device/entry.cuh"

namespace rondo::layer {

RONDO_BN_KERNELS(RONDO_ENTRY)

}  // namespace rondo::layer

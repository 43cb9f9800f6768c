// SPDX-License-Identifier: Apache-2.0
//
// The entry points of the kernels.
#include "collectives/kernels/device/kernels.h"
#include "device/entry.cuh"

namespace rondo::kernels {

RONDO_DEVICE_KERNELS(RONDO_ENTRY)

}  // namespace rondo::kernels

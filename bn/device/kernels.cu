// SPDX-License-Identifier: Apache-2.0
//
// The entry points of the kernels.
#include "bn/device/kernels.h"
#include "device/entry.cuh"

namespace rondo::bn {

RONDO_BN_KERNELS(RONDO_ENTRY)

}  // namespace rondo::bn

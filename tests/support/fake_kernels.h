// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/fake/control.h"

namespace rondo::testing {

// Makes the fake driver run the kernels of Rondo (device_kernels.h) on the processor. Before a
// module is loaded. Thread-safe.
void register_device_kernels(const FakeCuda& fake);

}  // namespace rondo::testing

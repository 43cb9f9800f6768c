// SPDX-License-Identifier: Apache-2.0
//
// For builds without nvcc.
#include "collectives/kernels/device/image.h"

namespace rondo::kernels {

const void* device_image() noexcept {
  return nullptr;
}

}  // namespace rondo::kernels

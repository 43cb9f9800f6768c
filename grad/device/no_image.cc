// SPDX-License-Identifier: Apache-2.0
//
// For builds without nvcc.
#include "grad/device/image.h"

namespace rondo::grad {

const void* device_image() noexcept {
  return nullptr;
}

}  // namespace rondo::grad

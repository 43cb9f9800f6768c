// SPDX-License-Identifier: Apache-2.0
#include "grad/device/image.h"

// In device/image.S.
extern "C" [[gnu::visibility("hidden")]] const unsigned char rondo_grad_device_image[];

namespace rondo::grad {

const void* device_image() noexcept {
  return rondo_grad_device_image;
}

}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/device/image.h"

// In device/image.S.
extern "C" [[gnu::visibility("hidden")]] const unsigned char rondo_collectives_device_image[];

namespace rondo::kernels {

const void* device_image() noexcept {
  return rondo_collectives_device_image;
}

}  // namespace rondo::kernels

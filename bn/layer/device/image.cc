// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/device/image.h"

// In device/image.S.
extern "C" [[gnu::visibility("hidden")]] const unsigned char rondo_bn_device_image[];

namespace rondo::layer {

const void* device_image() noexcept {
  return rondo_bn_device_image;
}

}  // namespace rondo::layer

// SPDX-License-Identifier: Apache-2.0
//
// For builds without nvcc.
#include "bn/layer/device/image.h"

namespace rondo::layer {

const void* device_image() noexcept {
  return nullptr;
}

}  // namespace rondo::layer

// SPDX-License-Identifier: Apache-2.0
//
// For builds without nvcc.
#include "bn/device/image.h"

namespace rondo::bn {

const void* device_image() noexcept {
  return nullptr;
}

}  // namespace rondo::bn

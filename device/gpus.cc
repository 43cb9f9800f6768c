// SPDX-License-Identifier: Apache-2.0
#include "device/gpus.h"

#include <utility>

namespace rondo::device {

const Gpu& Gpus::gpu(int ordinal) {
  const std::lock_guard lock(mutex_);
  if (!driver_) {
    LoadedDriver loaded = load_driver();
    if (!loaded.driver) throw Error(Errc::unsupported, loaded.obstacle);
    driver_ = std::move(loaded.driver);
  }
  std::unique_ptr<Gpu>& gpu = gpus_[ordinal];
  if (!gpu) gpu = std::make_unique<Gpu>(*driver_, ordinal);
  return *gpu;
}

}  // namespace rondo::device

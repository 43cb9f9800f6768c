// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "device/driver.h"
#include "device/gpu.h"

namespace rondo::device {

// CUDA's driver and the GPUs that a process has used so far. It is loaded at the first use, because
// most programs have no GPU, and a context takes memory and time. Thread-safe.
class Gpus {
 public:
  // Throws Error: unsupported without a driver, with the reason and the remedy; invalid_argument if
  // there is no such GPU; system in the driver's words. The GPU lives as long as this object.
  const Gpu& gpu(int ordinal);

 private:
  std::mutex mutex_;
  std::unique_ptr<const CudaDriver> driver_;
  std::map<int, std::unique_ptr<Gpu>> gpus_;
};

}  // namespace rondo::device

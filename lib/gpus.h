// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <rondo/types.h>

#include "collectives/engine/gpu_staging.h"
#include "device/driver.h"
#include "device/gpu.h"
#include "lib/arguments.h"
#include "transports/transport.h"

namespace rondo::lib {

// CUDA's driver and the GPUs that a process has used so far. It is loaded at the first use, because
// most programs have no GPU, and a context takes memory and time. Thread-safe.
class Gpus {
 public:
  // Throws Error: unsupported without a driver, with the reason and the remedy; invalid_argument if
  // there is no such GPU; system in the driver's words. The GPU lives as long as this object.
  const device::Gpu& gpu(int ordinal);

 private:
  std::mutex mutex_;
  std::unique_ptr<const device::CudaDriver> driver_;
  std::map<int, std::unique_ptr<device::Gpu>> gpus_;
};

// Checks that the buffer lies in memory of its GPU. Throws as CheckedCall does.
void check_on_gpu(const CheckedCall& call, const device::Gpu& gpu, const Buffer& buffer,
                  std::string_view name);
// Throws Error(unsupported) while a graph captures the stream.
void check_stream(const CheckedCall& call, const device::Gpu& gpu, device::StreamHandle stream);

// Memory of the GPU, zeroed. It keeps `gpus`. Throws Error.
std::unique_ptr<transports::Allocation> allocate_on_gpu(std::shared_ptr<Gpus> gpus, int ordinal,
                                                        std::size_t bytes);

}  // namespace rondo::lib

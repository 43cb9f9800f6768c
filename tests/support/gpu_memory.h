// SPDX-License-Identifier: Apache-2.0
//
// Memory of a GPU for tests, as one thread uses it. Works on a real GPU and over the fake driver.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "device/copy_queue.h"
#include "device/gpu.h"
#include "device/objects.h"

namespace rondo::testing {

// How many GPUs tests use: two, or the one that there is. Throws std::runtime_error where there is
// none. Thread-safe.
int gpus_of_tests();

// Copies to and from a GPU, and waits for each copy. Thread-bound.
class GpuCopier {
 public:
  explicit GpuCopier(const device::Gpu& gpu);
  const device::Gpu& gpu() const noexcept { return gpu_; }
  void write(device::Address to, std::span<const std::byte> from);
  void read(std::span<std::byte> to, device::Address from);

 private:
  void finish();

  const device::Gpu& gpu_;
  device::PinnedMemory memory_;
  device::CopyQueue queue_;
};

}  // namespace rondo::testing

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "bn/device/gpu_kernels.h"

namespace rondo::bn {

// What the backward pass of one forward pass needs, in memory of a GPU: the arrays of a PassRecord.
// Thread-bound to whoever holds the record. The destructor waits for work that uses them.
class GpuRecord {
 public:
  GpuRecord(std::shared_ptr<const GpuKernels> kernels, std::size_t channels);
  ~GpuRecord();

  DeviceRecord arrays() const noexcept;
  StreamUse& use() noexcept { return use_; }

 private:
  const std::shared_ptr<const GpuKernels> kernels_;
  const std::size_t channels_;
  std::unique_ptr<GpuArrays> arrays_;
  StreamUse use_;
};

}  // namespace rondo::bn

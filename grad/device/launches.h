// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "device/gpus.h"
#include "device/objects.h"
#include "grad/device/arguments.h"

namespace rondo::grad {

// The fat binary of the kernels (kernels.h lists them), for device::Module. Null in a build without
// nvcc (-Dcuda). Thread-safe; the memory lives as long as the library.
const void* device_image() noexcept;

// The kernels of gradient buckets on one GPU, which the object keeps. Thread-safe.
class BucketKernels {
 public:
  // Loads them, and may block. Throws Error: unsupported without a driver or in a build without
  // kernels; invalid_argument if there is no such GPU; system in the driver's words.
  explicit BucketKernels(int ordinal);

  const device::Gpu& gpu() const noexcept { return gpu_; }
  // Enqueues a pass. Pieces that lie back to back become one, unless they are summed up, and a
  // launch takes as many as fit: one for most buckets. The context is current. Throws
  // Error(system).
  void run(const Pass& pass, std::span<const Piece> pieces, device::StreamHandle stream) const;

 private:
  void launch(PieceArguments& arguments, device::StreamHandle stream) const;

  device::Gpus gpus_;
  const device::Gpu& gpu_;
  device::Module module_;
  std::vector<device::FunctionHandle> functions_;  // in the order of kernels.h
};

}  // namespace rondo::grad

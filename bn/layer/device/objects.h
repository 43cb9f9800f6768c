// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

#include <rondo/types.h>

#include "bn/layer/device/launch.h"
#include "device/gpus.h"
#include "device/objects.h"

namespace rondo::layer {

// Batch norm's kernels on one GPU. Whatever uses them shares this object, which keeps the GPU: a
// pass may outlive its layer, and a layer its communicator. load() is thread-bound; the rest is
// thread-safe.
class GpuKernels {
 public:
  // Throws Error: unsupported without a driver or in a build without kernels; invalid_argument if
  // there is no such GPU; system in the driver's words.
  explicit GpuKernels(int ordinal,
                      std::chrono::milliseconds settle_time = std::chrono::seconds{10});

  const device::Gpu& gpu() const noexcept { return gpu_; }
  // Loads the kernels of a type. May block. Throws Error(system).
  void load(DType type);
  // For destructors: waits until the event is reached. Returns whether memory that work before it
  // uses may be freed: a GPU that has failed runs nothing any more. All waits share one time,
  // because there may be many layers and passes on a GPU that hangs: once it has run out, a wait
  // only looks, until a kernel is launched again.
  bool settle(const device::Event& last) const noexcept;
  // Enqueues a kernel that was loaded. The context is current. Throws Error(system).
  template <class Arguments>
  void launch(DeviceKernel kernel, DType type, const Arguments& arguments, unsigned blocks,
              device::StreamHandle stream) const {
    static_assert(sizeof(Arguments) <= 4096, "what every GPU takes");
    launch_with(kernel, type, &arguments, blocks, stream);
  }

 private:
  void launch_with(DeviceKernel kernel, DType type, const void* arguments, unsigned blocks,
                   device::StreamHandle stream) const;

  const std::chrono::milliseconds settle_time_;
  mutable std::atomic<bool> hangs_ = false;
  device::Gpus gpus_;
  const device::Gpu& gpu_;
  device::Module module_;
  std::array<std::array<device::FunctionHandle, 4>, device_kernels> functions_{};
};

// The last work that uses some memory of a GPU. The stream that comes next waits for it, also where
// its handle is the same: that may be another stream by now, or one of another thread.
// Thread-bound; the context is current where a stream is given. Throws Error(system).
class StreamUse {
 public:
  explicit StreamUse(const GpuKernels& kernels) : kernels_(kernels), last_(kernels.gpu()) {}
  void begin(device::StreamHandle stream);
  void end(device::StreamHandle stream);
  // Waits for the last work: see GpuKernels::settle.
  bool settle() const noexcept { return !used_ || kernels_.settle(last_); }

 private:
  const device::Gpu& gpu() const noexcept { return kernels_.gpu(); }

  const GpuKernels& kernels_;
  device::Event last_;
  bool used_ = false;
};

// Memory of a GPU that is zero, with f64 arrays in it. Its owner settles the last use first.
// Throws Error(system).
class GpuArrays {
 public:
  GpuArrays(const device::Gpu& gpu, std::size_t elements);
  double* data() const noexcept { return reinterpret_cast<double*>(memory_.address()); }
  std::size_t elements() const noexcept { return memory_.bytes() / sizeof(double); }

 private:
  device::DeviceMemory memory_;
};

}  // namespace rondo::layer

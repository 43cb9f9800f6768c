// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>

#include <rondo/types.h>

#include "bn/layer/device/launch.h"
#include "device/gpus.h"
#include "device/objects.h"

namespace rondo::layer {

// How long destructors wait for a GPU. What it may still use after that is never freed.
inline constexpr std::chrono::milliseconds settle_time{10'000};

// Batch norm's kernels on one GPU. Whatever uses them shares this object, which keeps the GPU: a
// pass may outlive its layer, and a layer its communicator. load() is thread-bound; the rest is
// thread-safe.
class GpuKernels {
 public:
  // Throws Error: unsupported without a driver or in a build without kernels; invalid_argument if
  // there is no such GPU; system in the driver's words.
  explicit GpuKernels(int ordinal);

  const device::Gpu& gpu() const noexcept { return gpu_; }
  // Loads the kernels of a type. May block. Throws Error(system).
  void load(DType type);
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
  explicit StreamUse(const device::Gpu& gpu) : gpu_(gpu), last_(gpu) {}
  void begin(device::StreamHandle stream);
  void end(device::StreamHandle stream);
  // Waits for the last work, at most 10 s. Returns whether it has ended; a GPU that has failed runs
  // nothing any more.
  bool settle() const noexcept;

 private:
  const device::Gpu& gpu_;
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

// The arrays of a PassRecord in memory of a GPU. Thread-bound to whoever holds the record. The
// destructor waits for work that uses them.
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

}  // namespace rondo::layer

// SPDX-License-Identifier: Apache-2.0
//
// Lets ranks of one host load and store memory of GPUs that each of them has allocated or
// registered: windows without links. Another transport, shm, has the ranks' areas, wakes them and
// passes descriptors.
//
// A rank in the same process imports allocated memory as any other does. So whoever ends first, the
// memory lives until the last one has let go of it. Registered memory it uses by its address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/file_descriptor.h"
#include "device/gpus.h"
#include "transports/cuda_ipc/exports.h"
#include "transports/cuda_ipc/imports.h"
#include "transports/gpu_windows.h"
#include "transports/host/passing.h"
#include "transports/transport.h"

namespace rondo::cuda_ipc {

// Windows whose find() and map() are about memory of GPUs. Pointers are addresses of the GPU. What
// this rank shares is in Exports, and what it has mapped of others in Imports.
//
// Threads: allocate(), register_memory() and catch_up() are thread-safe, may block in CUDA, and do
// not run under the engine's lock, nor does close(). The rest is thread-bound to the driver of the
// transport, and does not block.
// Failures: allocate() and register_memory() throw Error. Memory of a peer that cannot be mapped is
// never found, and a warning says why. close() may wait for CUDA, for two seconds more than it was
// given; then it says so, and Imports stays until the process ends.
class CudaWindows final : public transports::GpuWindows, private host::DescriptorSink {
 public:
  // below: windows of at most most_ranks ranks on this host; it and `passing` outlive the object.
  CudaWindows(int rank, transports::Windows& below, host::DescriptorPassing& passing,
              std::shared_ptr<device::Gpus> gpus);
  // No operation uses memory of a peer any more.
  ~CudaWindows() override;
  CudaWindows(const CudaWindows&) = delete;
  CudaWindows& operator=(const CudaWindows&) = delete;
  void close(bool idle, base::TimePoint until) noexcept override;

  std::unique_ptr<transports::Allocation> allocate(int ordinal, std::size_t bytes) override {
    return Exports::allocate(exports_, gpus_, ordinal, bytes);
  }
  std::unique_ptr<transports::Registration> register_memory(int ordinal,
                                                            std::span<std::byte> memory) override {
    return Exports::register_memory(exports_, gpus_, ordinal, memory);
  }
  void catch_up(const device::Gpu& gpu) override { imports_->catch_up(gpu); }
  bool reaches_all() const noexcept override { return imports_->reaches_all(); }
  void hold() noexcept override { exports_->hold(); }
  void release() noexcept override { exports_->release(); }
  std::byte* map_for(const device::Gpu& gpu, int rank, transports::WindowPlace place,
                     std::size_t bytes) override {
    return imports_->map(&gpu, rank, place, bytes);
  }

  std::byte* area(int rank) const noexcept override { return below_.area(rank); }
  transports::WindowPlace find(const void* data, std::size_t bytes) noexcept override {
    return exports_->find(data, bytes);
  }
  void ended(transports::WindowPlace place) noexcept override { exports_->ended(place); }
  std::byte* map(int rank, transports::WindowPlace place, std::size_t bytes) override {
    return imports_->map(nullptr, rank, place, bytes);
  }
  void await(std::uint64_t ranks) noexcept override { below_.await(ranks); }
  void notify() noexcept override { below_.notify(); }

 private:
  void passed(int rank, std::span<const std::byte> message,
              base::FileDescriptor descriptor) override {
    imports_->passed(rank, message, std::move(descriptor));
  }
  void halted() noexcept override { exports_->halt(); }

  const int rank_;
  transports::Windows& below_;
  host::DescriptorPassing& passing_;
  const std::shared_ptr<device::Gpus> gpus_;
  const std::shared_ptr<Exports> exports_;
  std::unique_ptr<Imports> imports_;
  bool closed_ = false;
};

}  // namespace rondo::cuda_ipc

// SPDX-License-Identifier: Apache-2.0
//
// Lets ranks of one host load and store memory of GPUs that each of them has allocated: windows
// without links. Another transport, shm, has the ranks' areas, wakes them and passes descriptors.
//
// A rank in the same process imports memory as any other does. So whoever ends first, memory lives
// until the last one has let go of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "device/gpus.h"
#include "device/objects.h"
#include "transports/cuda_ipc/exports.h"
#include "transports/gpu_windows.h"
#include "transports/transport.h"

namespace rondo::cuda_ipc {

// Windows whose find() and map() are about memory of GPUs. Pointers are addresses of the GPU.
//
// Threads: allocate() and catch_up() are thread-safe, may block in CUDA, and do not run under the
// engine's lock. The rest is thread-bound to the driver of the transport, and does not block.
// Locks: two mutexes of its own, and that of Exports.
// Failures: allocate() throws Error. Memory of a peer that cannot be mapped is never found, and a
// warning says why.
class CudaWindows final : public transports::GpuWindows, private transports::DescriptorSink {
 public:
  // host: windows of at most most_ranks ranks on this host, which outlive the object.
  CudaWindows(int rank, transports::Windows& host, std::shared_ptr<device::Gpus> gpus);
  // No operation uses memory of a peer any more.
  ~CudaWindows() override;
  CudaWindows(const CudaWindows&) = delete;
  CudaWindows& operator=(const CudaWindows&) = delete;
  void close() noexcept override;

  std::unique_ptr<transports::Allocation> allocate(int ordinal, std::size_t bytes) override {
    return Exports::allocate(exports_, gpus_, ordinal, bytes);
  }
  void catch_up(const device::Gpu& gpu) override;
  bool reaches_all() const noexcept override { return reaches_all_; }

  std::span<const int> ranks() const noexcept override { return host_.ranks(); }
  std::byte* area(int rank) const noexcept override { return host_.area(rank); }
  transports::WindowPlace find(const void* data, std::size_t bytes) noexcept override {
    return exports_->find(data, bytes);
  }
  std::byte* map(int rank, transports::WindowPlace place, std::size_t bytes) override;
  void await(std::uint64_t ranks) noexcept override { host_.await(ranks); }
  void notify() noexcept override { host_.notify(); }

 private:
  // Which export of which rank: its place among the ranks, and the slot.
  using Key = std::pair<std::size_t, std::uint32_t>;
  struct Arrived {
    std::uint32_t generation = 0;
    base::FileDescriptor descriptor;
  };
  struct Import {
    std::uint32_t generation = 0;
    device::SharedMemory memory;
  };
  using Imports = std::map<Key, Import>;

  void passed(int rank, std::span<const std::byte> message,
              base::FileDescriptor descriptor) override;
  void halted() noexcept override { exports_->halt(); }
  std::size_t place_of(int rank) const noexcept;  // ranks().size() for another rank
  std::uint32_t generation_of(const Key& key) const noexcept;
  void publish(const Key& key, std::uint32_t generation) noexcept;
  void use(const device::Gpu& gpu);
  void drop_freed();
  void take_arrived();
  void import(const Key& key, const Arrived& arrived);
  void check_reach(const device::CudaDriver& driver, device::Ordinal owner) const;
  void complain(std::size_t place, std::string_view why);

  transports::Windows& host_;
  const std::shared_ptr<device::Gpus> gpus_;
  const std::shared_ptr<Exports> exports_;
  bool closed_ = false;
  std::atomic<bool> reaches_all_{true};
  std::size_t place_ = 0;       // of this rank
  std::vector<Table*> tables_;  // by place
  std::mutex catching_up_;      // for one catch_up() at a time; guards used_ and log_
  std::vector<const device::Gpu*> used_;
  base::QuotaLog log_;
  std::mutex mutex_;  // guards what follows; nothing blocks under it
  std::map<Key, Arrived> arrived_;
  Imports imports_;
};

}  // namespace rondo::cuda_ipc

// SPDX-License-Identifier: Apache-2.0
//
// Lets ranks of one host load and store memory of GPUs that each of them has allocated or
// registered: windows without links. Another transport, shm, has the ranks' areas, wakes them and
// passes descriptors.
//
// A rank in the same process imports allocated memory as any other does. So whoever ends first, the
// memory lives until the last one has let go of it. Registered memory it uses by its address.
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
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "device/gpus.h"
#include "device/objects.h"
#include "transports/cuda_ipc/exports.h"
#include "transports/cuda_ipc/process_memory.h"
#include "transports/gpu_windows.h"
#include "transports/transport.h"

namespace rondo::cuda_ipc {

// Registered memory of another rank of this process, by its address. Its owner waits until this
// rank has let go of it.
class NearMemory {
 public:
  // gpus: of this rank; outlives the object.
  NearMemory(device::Gpus& gpus, const ProcessMemory& memory) noexcept
      : gpus_(&gpus), memory_(memory) {}
  device::Address address() const noexcept { return memory_.address; }
  std::size_t bytes() const noexcept { return memory_.bytes; }
  void give_access(const device::Gpu& gpu) const {
    device::enable_access(gpu, gpus_->gpu(memory_.ordinal));
  }

 private:
  device::Gpus* gpus_;
  ProcessMemory memory_;
};

// Windows whose find() and map() are about memory of GPUs. Pointers are addresses of the GPU.
//
// While this rank has registered memory of others open, a thread of its own waits for the end of
// these registrations and closes the memory, so that their owners may free it whatever this rank
// does meanwhile. After a failure of the owner it waits until the operations of this rank have
// ended too.
//
// Threads: allocate(), register_memory() and catch_up() are thread-safe, may block in CUDA, and do
// not run under the engine's lock, nor does close(). The rest is thread-bound to the driver of the
// transport, and does not block.
// Locks: two mutexes of its own, and that of Exports.
// Failures: allocate() and register_memory() throw Error. Memory of a peer that cannot be mapped is
// never found, and a warning says why.
class CudaWindows final : public transports::GpuWindows, private transports::DescriptorSink {
 public:
  // host: windows of at most most_ranks ranks on this host, which outlive the object.
  CudaWindows(int rank, transports::Windows& host, std::shared_ptr<device::Gpus> gpus);
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
  void catch_up(const device::Gpu& gpu) override;
  bool reaches_all() const noexcept override { return reaches_all_; }
  void hold() noexcept override { holds_.fetch_add(1); }
  void let_go() noexcept override { holds_.fetch_sub(1); }

  std::span<const int> ranks() const noexcept override { return host_.ranks(); }
  std::byte* area(int rank) const noexcept override { return host_.area(rank); }
  transports::WindowPlace find(const void* data, std::size_t bytes) noexcept override {
    return exports_->find(data, bytes);
  }
  void ended(transports::WindowPlace place) noexcept override { exports_->ended(place); }
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
  using Opened = std::variant<device::SharedMemory, device::OpenedMemory, NearMemory>;
  struct Import {
    std::uint32_t generation = 0;
    Opened memory;

    bool is_registered() const noexcept {
      return !std::holds_alternative<device::SharedMemory>(memory);
    }
    device::Address address() const noexcept {
      return std::visit([](const auto& one) { return one.address(); }, memory);
    }
    std::size_t bytes() const noexcept {
      return std::visit([](const auto& one) { return one.bytes(); }, memory);
    }
    void give_access(const device::Gpu& gpu) {
      std::visit([&](auto& one) { one.give_access(gpu); }, memory);
    }
  };
  using Imports = std::map<Key, Import>;

  void passed(int rank, std::span<const std::byte> message,
              base::FileDescriptor descriptor) override;
  void halted() noexcept override {
    exports_->halt();
    halted_ = true;
  }
  std::size_t place_of(int rank) const noexcept;  // ranks().size() for another rank
  std::uint32_t generation_of(const Key& key) const noexcept;
  base::WakeWord& mapped(const Key& key) noexcept {
    return tables_[place_]->mapped[key.first][key.second];
  }
  void publish(const Key& key, std::uint32_t state) noexcept;
  void use(const device::Gpu& gpu);
  bool may_drop(const Key& key, const Import& import) const noexcept;
  void drop_freed() noexcept;
  void drop(Imports::node_type freed) noexcept;
  void run_releaser() noexcept;
  void take_arrived();
  void take_registered();
  template <class Open>
  void add_import(const Key& key, std::uint32_t generation, bool is_registered, Open open);
  Opened open_allocated(const Key& key, const Arrived& arrived) const;
  Opened open_registered(const Key& key) const;
  void check_reach(const device::CudaDriver& driver, device::Ordinal owner) const;
  void complain_of(const Key& key, bool is_registered, std::string_view why);
  void complain(const std::string& what);

  transports::Windows& host_;
  const std::shared_ptr<device::Gpus> gpus_;
  const std::shared_ptr<Exports> exports_;
  bool closed_ = false;
  std::atomic<bool> reaches_all_{true}, halted_{false}, closing_{false};
  std::atomic<int> holds_{0};
  std::size_t place_ = 0;       // of this rank
  std::vector<Table*> tables_;  // by place
  std::mutex catching_up_;      // for one catch_up() at a time; guards what follows
  std::vector<const device::Gpu*> used_;
  std::vector<std::uint32_t> seen_registrations_;  // by place
  base::QuotaLog log_;
  std::thread releaser_;  // runs while registered memory may be open
  std::mutex mutex_;      // guards what follows; nothing blocks under it
  std::map<Key, Arrived> arrived_;
  Imports imports_;
};

}  // namespace rondo::cuda_ipc

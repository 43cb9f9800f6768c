// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
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

// Registered memory of another process. CUDA opens a handle once in each context, so each GPU of
// this process has an address of its own.
class FarMemory {
 public:
  FarMemory(const device::Gpu& gpu, const device::IpcMemoryHandle& handle) : handle_(handle) {
    opened_.emplace_back(gpu, handle);
  }
  std::size_t bytes() const noexcept { return opened_.front().bytes(); }
  // 0 for a GPU for which it is not open. Null: the first one for which it was opened.
  device::Address address(const device::Gpu* gpu) const noexcept;
  // May block; throws Error.
  device::OpenedMemory open_for(const device::Gpu& gpu) const;
  void add(device::OpenedMemory opened) { opened_.push_back(std::move(opened)); }

 private:
  device::IpcMemoryHandle handle_;
  std::vector<device::OpenedMemory> opened_;  // one for each GPU
};

// Memory of GPUs of the other ranks that this rank has mapped.
//
// While this rank has registered memory of others open, a thread of its own waits for the end of
// these registrations and closes the memory, so that their owners may free it whatever this rank
// does meanwhile. After a failure of the owner it waits until the operations of this rank have
// ended too.
//
// Threads: catch_up() and reaches_all() are thread-safe. catch_up() and close() may block in CUDA.
// passed() and map() are thread-bound to the driver of the transport.
// Locks: two mutexes of its own, and that of Exports.
// Failures: memory of a peer that cannot be mapped is never found, and a warning says why, once.
// Registered memory that cannot be opened is tried again ten times a second, unless that is of no
// use (unsupported).
class Imports {
 public:
  // below: see CudaWindows; used until close().
  Imports(int rank, const transports::Windows& below, std::shared_ptr<device::Gpus> gpus,
          std::shared_ptr<Exports> exports);
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  // See DescriptorSink and GpuWindows.
  void passed(int rank, std::span<const std::byte> message, base::FileDescriptor descriptor);
  void catch_up(const device::Gpu& gpu);
  bool reaches_all() const noexcept { return reaches_all_; }
  // gpu: null for the first one that this rank has used.
  std::byte* map(const device::Gpu* gpu, int rank, transports::WindowPlace place,
                 std::size_t bytes);
  // Ends the thread. idle: lets go of all memory too. False: CUDA blocks there, still at `until`;
  // then this object must be kept until the process ends.
  bool close(bool idle, base::TimePoint until) noexcept;

 private:
  // Which export of which rank: its place among the ranks, and the slot.
  using Key = std::pair<std::size_t, std::uint32_t>;
  struct Arrived {
    std::uint32_t generation = 0;
    base::FileDescriptor descriptor;
  };
  using Opened = std::variant<device::SharedMemory, FarMemory, NearMemory>;
  struct Import {
    std::uint32_t generation = 0;
    Opened memory;

    bool is_registered() const noexcept {
      return !std::holds_alternative<device::SharedMemory>(memory);
    }
    device::Address address(const device::Gpu* gpu) const noexcept;
    std::size_t bytes() const noexcept {
      return std::visit([](const auto& one) { return one.bytes(); }, memory);
    }
  };
  using ByKey = std::map<Key, Import>;
  // The registrations of another rank, as far as this one has seen them.
  struct Seen {
    std::uint32_t registrations = 0;
    base::TimePoint next_try = base::TimePoint::max();  // of what could not be opened
    std::array<std::uint32_t, most_exports> refused{};  // the generation, by slot
  };

  std::size_t place_of(int rank) const noexcept;  // tables_.size() for another rank
  std::uint32_t generation_of(const Key& key) const noexcept;
  base::WakeWord& mapped(const Key& key) noexcept {
    return tables_[place_]->mapped[key.first][key.second];
  }
  void publish(const Key& key, std::uint32_t state) noexcept;
  void use(const device::Gpu& gpu);
  void give_access(Import& import, const device::Gpu& gpu);
  bool may_drop(const Key& key, const Import& import) const noexcept;
  void drop_freed() noexcept;
  void drop_all() noexcept;
  void drop(ByKey::node_type freed) noexcept;
  void run_releaser() noexcept;
  void take_arrived();
  void take_registered();
  template <class Open>
  void add_import(const Key& key, std::uint32_t generation, bool is_registered, Open open);
  void refused(const Key& key, std::uint32_t generation, bool is_registered, bool is_lasting,
               std::string_view why);
  Opened open_allocated(const Key& key, const Arrived& arrived) const;
  Opened open_registered(const Key& key) const;
  void check_reach(const device::CudaDriver& driver, device::Ordinal owner) const;
  void complain_of(const Key& key, bool is_registered, std::string_view why);
  void complain(const std::string& what);

  const std::shared_ptr<device::Gpus> gpus_;
  const std::shared_ptr<Exports> exports_;
  const std::vector<int> ranks_;
  std::atomic<bool> reaches_all_{true}, closing_{false}, drops_all_{false};
  std::size_t place_ = 0;       // of this rank
  std::vector<Table*> tables_;  // by place
  std::mutex catching_up_;      // for one catch_up() at a time; guards what follows
  std::vector<const device::Gpu*> used_;
  std::vector<Seen> seen_;  // by place
  base::QuotaLog log_;
  std::thread releaser_;  // runs while registered memory may be open
  std::mutex mutex_;      // guards what follows; nothing blocks under it
  std::map<Key, Arrived> arrived_;
  ByKey imports_;
  std::condition_variable changed_;  // for close()
  int in_cuda_ = 0;                  // threads that let go of memory
  // abandoned_: the tables are gone.
  bool releaser_ended_ = false, abandoned_ = false;
};

}  // namespace rondo::cuda_ipc

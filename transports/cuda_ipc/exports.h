// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/gpus.h"
#include "device/objects.h"
#include "transports/cuda_ipc/own_table.h"
#include "transports/host/passing.h"
#include "transports/transport.h"

namespace rondo::cuda_ipc {

// The message that comes with a descriptor: which export it is, slot and generation.
inline constexpr std::size_t export_message_bytes = 8;

// Memory of GPUs that this rank lets the others load and store. An export is what one call of
// allocate() has made, or an allocation of the program (cudaMalloc) of which register_memory() was
// told some part. Until all other ranks have mapped it, find() answers "nowhere".
//
// - Allocated: the others get a descriptor after it was first used in an operation. Physical memory
//   lives until the last rank has let go of it, so ranks may end in any order.
// - Registered: the others open its handle as soon as they see it. The program may free it when the
//   last registration has ended. So that end waits, for a bounded time, until no operation uses the
//   memory here and no other rank has it open. After a failure it waits for the work that hold()
//   has counted instead, because ended() is not called then.
//
// Threads: thread-safe. Locks: one mutex of its own, under which nothing blocks. allocate(),
// register_memory(), send_wanted(), close() and the ends of memory and of registrations may block,
// so they do not run under the engine's lock. Failures: allocate() and register_memory() throw
// Error; nothing else fails. Memory that another rank does not let go of in time is named on
// standard error.
class Exports {
 public:
  // How long the end of a registration waits at most.
  static constexpr milliseconds release_time{5000};

  // windows: those of the host, with at most most_ranks. They and `passing` are used until close().
  Exports(const transports::Windows& windows, host::DescriptorPassing& passing, int rank);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  // Zeroed memory. It keeps `gpus` and `exports`. Throws Error(system).
  static std::unique_ptr<transports::Allocation> allocate(const std::shared_ptr<Exports>& exports,
                                                          std::shared_ptr<device::Gpus> gpus,
                                                          int ordinal, std::size_t bytes);
  // Memory of the GPU that the program has allocated, or has from allocate(). The same lifetimes.
  // Throws Error: unsupported if other processes cannot open such memory; system.
  static std::unique_ptr<transports::Registration> register_memory(
      const std::shared_ptr<Exports>& exports, std::shared_ptr<device::Gpus> gpus, int ordinal,
      std::span<std::byte> memory);
  // The others get no more descriptors, and the table is no longer used. Registered memory is
  // withdrawn; waits until the others have let go of it, but not beyond `until`. idle: no work of
  // this rank is under way on a GPU.
  void close(bool idle, base::TimePoint until) noexcept;
  // Others may still use memory that is freed from now on, or registered memory that is withdrawn.
  void halt() noexcept;
  // See GpuWindows. They do not block.
  void hold() noexcept { holds_.fetch_add(1); }
  void release() noexcept;
  // After halt(): whether no work that was held is under way.
  bool is_settled() const noexcept { return halted_ && holds_ == 0; }
  transports::WindowPlace find(const void* data, std::size_t bytes) noexcept;
  // See Windows::ended().
  void ended(transports::WindowPlace place) noexcept;
  // Sends the descriptors of what find() was asked for and others have not got. Returns why
  // something cannot be exported, the first time; else empty.
  std::string send_wanted() noexcept;

 private:
  class Owned;
  class Registered;
  struct Live {
    std::shared_ptr<const device::SharedMemory> memory;  // null: registered
    device::Address address = 0;
    std::size_t bytes = 0;  // that were asked for; of the whole allocation if registered
    OwnTable::Place place;
    bool wanted = false;
    std::uint64_t told = 0;  // the places of the ranks that have its descriptor, a bit for each
    std::uint64_t name = 0;  // in this process, of registered memory
    std::size_t registrations = 0;
    std::size_t uses = 0;  // by operations of this rank, while it is registered
  };
  using Lives = std::vector<std::shared_ptr<Live>>;

  std::shared_ptr<Live> register_range(const device::Gpu& gpu, std::span<std::byte> memory);
  bool register_known(device::Address address, std::shared_ptr<Live>& live) noexcept;
  bool insert(const std::shared_ptr<Live>& live, const OwnTable::Shown& shown);
  void tell_full() const;
  void remove(const std::shared_ptr<Live>& live) noexcept;
  void release(const std::shared_ptr<Live>& live) noexcept;
  void withdraw(const Live& live) noexcept;
  Lives withdraw_registered() noexcept;
  void complain(const Live& live, std::uint64_t holders) const noexcept;
  Lives::iterator live_after(device::Address address) noexcept;
  Live* live_at(device::Address address) noexcept;
  std::uint64_t everyone_else() const noexcept;
  std::uint64_t send(const Live& live) const;

  std::mutex mutex_;
  std::condition_variable news_;      // for those who wait in release() and close()
  host::DescriptorPassing* passing_;  // null once closed
  OwnTable table_;
  Lives live_;  // by address
  // Registered memory that the table shows, also while its registration ends.
  std::array<std::shared_ptr<Live>, most_exports> slots_;
  std::size_t releasing_ = 0;  // threads in release() that use the tables
  std::atomic<bool> halted_{false};
  std::atomic<int> holds_{0};
  bool any_wanted_ = false, told_why_ = false, told_full_ = false;
};

}  // namespace rondo::cuda_ipc

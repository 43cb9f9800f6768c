// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/gpus.h"
#include "device/objects.h"
#include "transports/cuda_ipc/table.h"
#include "transports/transport.h"

namespace rondo::cuda_ipc {

// The message that comes with a descriptor: which export it is, slot and generation.
inline constexpr std::size_t export_message_bytes = 8;

// Memory of GPUs that this rank has allocated for the others to load and store. An export is what
// one call of allocate() made. The others get its descriptor after it was first used in an
// operation. Until all of them have mapped it, find() answers "nowhere". Physical memory lives
// until the last rank has let go of it, so ranks may end in any order.
//
// Threads: thread-safe. Locks: one mutex of its own, under which nothing blocks. allocate(),
// send_wanted() and freeing memory call functions of CUDA that may block, so they do not run under
// the engine's lock. Failures: allocate() throws Error; nothing else fails.
class Exports {
 public:
  // windows: those of the host, with at most most_ranks; used until close().
  Exports(transports::Windows& windows, int rank);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  // Zeroed memory. It keeps `gpus` and `exports`. Throws Error(system).
  static std::unique_ptr<transports::Allocation> allocate(std::shared_ptr<Exports> exports,
                                                          std::shared_ptr<device::Gpus> gpus,
                                                          int ordinal, std::size_t bytes);
  // The others get no more descriptors, and the table is no longer used.
  void close() noexcept;
  // Others may still use memory that is freed from now on.
  void halt() noexcept;
  transports::WindowPlace find(const void* data, std::size_t bytes) noexcept;
  // Sends the descriptors of what find() was asked for and others have not got. Returns why
  // something cannot be exported, the first time; else empty.
  std::string send_wanted() noexcept;

 private:
  class Owned;
  struct Live {
    std::shared_ptr<const device::SharedMemory> memory;
    std::size_t bytes = 0;                              // that were asked for
    std::uint32_t slot = most_exports, generation = 0;  // most_exports: none was free
    bool wanted = false;
    std::uint64_t told = 0;  // the places of the ranks that have its descriptor, a bit for each
  };

  void insert(std::shared_ptr<const device::SharedMemory> memory, std::size_t bytes,
              const device::Gpu& gpu);
  void remove(device::Address address) noexcept;
  Live* live_at(device::Address address) noexcept;
  std::uint64_t everyone_else() const noexcept;
  bool is_everywhere(const Live& live) const noexcept;
  std::uint64_t send(const Live& live) const;

  std::mutex mutex_;
  transports::Windows* windows_;  // null once closed
  std::vector<int> ranks_;
  std::size_t place_ = 0;       // of this rank among ranks_
  std::vector<Table*> tables_;  // by place
  std::uint32_t last_generation_ = 0;
  std::vector<Live> live_;  // by address
  bool halted_ = false, any_wanted_ = false, told_why_ = false;
};

}  // namespace rondo::cuda_ipc

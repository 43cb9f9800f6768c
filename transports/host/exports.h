// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/shared_memory.h"
#include "transports/host/extent.h"
#include "transports/transport.h"

namespace rondo::host {

// In ExportPeer::mine: the peer has been sent the descriptor of this rank's memory file.
inline constexpr std::uint64_t descriptor_sent = std::uint64_t{1} << 63;
// The message that carries the descriptor.
inline constexpr std::string_view memory_magic = "rondomem";

// A rank that maps what this one exports. The words lie in memory that both ranks share.
struct ExportPeer {
  int socket = -1;                                     // borrowed; leads to the peer
  std::atomic<std::uint64_t>* mine = nullptr;          // this rank's word for the peer
  const std::atomic<std::uint64_t>* theirs = nullptr;  // the peer's: mask of what it has mapped
};

// Memory that this rank has allocated for the others to load and store, in extents of one memory
// file (extent.h). The mask `opened`, which the others can read, says which extents there are. A
// peer gets the file's descriptor when memory is first used in an operation. It maps the extents
// and says in its word which it has. Until all have mapped an extent, find() answers "nowhere" for
// memory in it, and operations go through slots: a peer that is short of descriptors or address
// space costs speed and nothing else.
//
// Threads: thread-safe, but only one thread at a time calls find(). Locks: one mutex of its own.
// Failures: allocate() throws Error(system); nothing else fails.
class Exports {
 public:
  // opened and what the peers point to outlive close().
  Exports(std::atomic<std::uint32_t>& opened, std::span<const ExportPeer> peers);
  // Peers get no more messages; opened and peers are no longer used.
  void close() noexcept;
  // Memory that is freed from now on is not given out again.
  void halt() noexcept { halted_ = true; }
  // Null when the limit of file sizes leaves no room. Throws Error(system).
  static std::unique_ptr<transports::Allocation> allocate(const std::shared_ptr<Exports>& exports,
                                                          std::size_t bytes);
  // Nowhere until every other rank has mapped it.
  transports::WindowPlace find(const void* data, std::size_t bytes) noexcept;

 private:
  class Owned;
  struct Live {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::uint32_t extent = 0;
  };
  struct Known {
    std::uint64_t version = 0;
    std::uintptr_t begin = 1, end = 0;
    std::uint32_t extent = 0;
    std::size_t offset = 0;  // of begin, in the extent
  };
  struct Peer {
    ExportPeer shared;
    bool told = false;  // it has the descriptor
    std::uint32_t mapped() const noexcept {
      return static_cast<std::uint32_t>(shared.theirs->load(std::memory_order_acquire));
    }
  };
  using Ranges = std::map<std::size_t, std::size_t>;  // bytes by offset

  std::byte* insert(std::size_t bytes);
  void remove(std::uintptr_t begin) noexcept;
  bool open(std::uint32_t extent);
  static std::size_t take_range(Ranges& free, std::size_t bytes);
  static void give_range(Ranges& free, std::size_t offset, std::size_t bytes);
  bool is_everywhere(std::uint32_t extent) noexcept;
  void tell() noexcept;
  Known look_up(std::uintptr_t begin, std::uintptr_t end) noexcept;

  std::mutex mutex_;
  std::atomic<std::uint32_t>* opened_;  // null once closed
  std::vector<Peer> peers_;
  base::FileDescriptor memory_;
  std::size_t file_bytes_ = 0;
  std::array<base::Mapping, Extent::count> extents_;  // those that are open
  std::array<Ranges, Extent::count> free_;
  std::vector<Live> live_;                 // by address
  std::uint32_t everywhere_ = 0;           // mask of extents that all others have mapped
  std::atomic<std::uint64_t> version_{1};  // of all of this
  std::atomic<std::size_t> live_count_{0};
  std::atomic<bool> halted_{false};
  std::array<Known, 8> known_;  // find()'s own
};

}  // namespace rondo::host

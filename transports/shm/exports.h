// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/file_descriptor.h"
#include "transports/shm/shared_memory.h"
#include "transports/transport.h"

namespace rondo {

// What this rank has allocated for the others to map. Each allocation has a slot, and each use of a slot a generation; the others
// are told by a message with its descriptor (memory_message). Thread-safe, but find() is for one thread at a time.
class ShmExports {
 public:
  // sockets: to all the others. They stay open until close().
  explicit ShmExports(std::vector<int> sockets) : sockets_(std::move(sockets)) {}
  // Nobody is told of anything any more.
  void close() noexcept;
  // Throws Error(system).
  static std::unique_ptr<Allocation> allocate(std::shared_ptr<ShmExports> exports, std::size_t bytes);
  // Nowhere until every other rank has been told.
  WindowPlace find(const void* data, std::size_t bytes) noexcept;

 private:
  class Owned;
  struct Live {
    std::uintptr_t begin = 0, bytes = 0;
    std::uint32_t slot = 0, generation = 0;
    std::size_t told = 0;   // so many of the sockets
    FileDescriptor memory;  // until all are told
  };
  struct Known {
    std::uint64_t version = 0;
    std::uintptr_t begin = 1, end = 0;
    std::uint32_t slot = 0, generation = 0;
  };

  void insert(std::uintptr_t begin, std::size_t bytes, FileDescriptor memory);
  void remove(std::uintptr_t begin) noexcept;
  bool tell(Live& live) noexcept;
  Known look_up(std::uintptr_t begin, std::uintptr_t end) noexcept;

  std::mutex mutex_;
  std::vector<int> sockets_;
  std::vector<Live> live_;                  // by address
  std::vector<std::uint32_t> generations_;  // by slot
  std::vector<std::uint32_t> free_;         // slots, the last freed at the end
  std::atomic<std::uint64_t> version_{1};   // of all of this
  std::atomic<std::size_t> live_count_{0};
  std::array<Known, 8> known_;  // find()'s own
};

// Tells of memory in a slot; with one descriptor.
struct MemoryMessage {
  std::uint32_t slot = 0, generation = 0;
  std::uint64_t bytes = 0;
};
inline constexpr std::size_t memory_message_bytes = 24;
std::array<std::byte, memory_message_bytes> encode(const MemoryMessage& message);
// Nothing when it is none, or its values are not possible.
std::optional<MemoryMessage> decode_memory_message(std::span<const std::byte> bytes);

}  // namespace rondo

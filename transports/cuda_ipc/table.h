// SPDX-License-Identifier: Apache-2.0
//
// A table lists the memory of GPUs that a rank shows to the others of its host, at the end of its
// area (Windows::area()). Its owner alone writes it. What others say there is not trusted: numbers
// are compared, or checked by CUDA's driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/futex.h"
#include "device/driver.h"
#include "transports/transport.h"

namespace rondo::cuda_ipc {

inline constexpr std::uint32_t most_exports = 256;  // that one rank has at a time
inline constexpr std::size_t most_ranks = 64;

// Memory that this rank has allocated or registered.
struct ExportEntry {
  std::atomic<std::uint64_t> bytes;
  std::array<std::atomic<std::uint64_t>, 2> gpu;  // its UUID
  // For registered memory: its name in this process (ProcessMemory), and its handle. 0: it was
  // allocated, and a descriptor comes.
  std::atomic<std::uint64_t> name;
  std::array<std::atomic<std::uint64_t>, sizeof(device::IpcMemoryHandle) / 8> handle;
  std::atomic<std::uint32_t> generation;  // stored last; 0: there is none
};

// In Table::mapped, beside the generation: this rank opens the memory or still has it open, and its
// operations do not use it.
inline constexpr std::uint32_t only_open = std::uint32_t{1} << 31;

struct Table {
  // Random, and never 0: which rank of which communicator this is, of all that a process has seen.
  std::atomic<std::uint64_t> identity;
  // A thread of this rank sleeps on it. A call means that there may be memory to let go of.
  base::WakeWord news;
  std::atomic<std::uint32_t> registrations;  // how many there have been
  // Not 0: this rank has withdrawn memory of an operation that has failed here. Others may still
  // use the memory.
  std::atomic<std::uint32_t> unsettled;
  std::array<ExportEntry, most_exports> exports;
  // For each rank, by its place in Windows::ranks(), and each of its exports: the generation that
  // this rank has mapped, or 0. The owner sleeps on it when it withdraws registered memory.
  std::array<std::array<base::WakeWord, most_exports>, most_ranks> mapped;
};
static_assert(sizeof(Table) <= transports::device_area_bytes);

inline Table& table_in(std::byte* area) noexcept {
  return *reinterpret_cast<Table*>(area + transports::window_area_bytes -
                                   transports::device_area_bytes);
}

}  // namespace rondo::cuda_ipc

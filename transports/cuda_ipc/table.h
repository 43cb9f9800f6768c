// SPDX-License-Identifier: Apache-2.0
//
// What a rank shows to the others of its host about memory of GPUs, at the end of its area
// (Windows::area()). It alone writes its table. What others say there is not trusted: numbers are
// compared, or checked by CUDA's driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transports/transport.h"

namespace rondo::cuda_ipc {

inline constexpr std::uint32_t most_exports = 256;  // that one rank has at a time
inline constexpr std::size_t most_ranks = 64;

// Memory that this rank has allocated.
struct ExportEntry {
  std::atomic<std::uint64_t> bytes;
  std::array<std::atomic<std::uint64_t>, 2> gpu;  // its UUID
  std::atomic<std::uint32_t> generation;          // stored last; 0: there is none
};

struct Table {
  std::array<ExportEntry, most_exports> exports;
  // For each rank, by its place in Windows::ranks(), and each of its exports: the generation that
  // this rank has mapped, or 0.
  std::array<std::array<std::atomic<std::uint32_t>, most_exports>, most_ranks> mapped;
};
static_assert(sizeof(Table) <= transports::device_area_bytes);

inline Table& table_in(std::byte* area) noexcept {
  return *reinterpret_cast<Table*>(area + transports::window_area_bytes -
                                   transports::device_area_bytes);
}

}  // namespace rondo::cuda_ipc

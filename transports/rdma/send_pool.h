// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/pages.h"
#include "transports/rdma/messages.h"
#include "transports/rdma/regions.h"

namespace rondo::rdma {

// Registered memory for what a rank sends and the program has not registered: blocks for a header
// and the payload of a slot, and small cells. All links of a transport share it, because data only
// passes through. Thread-bound (the driver of the transport).
class SendPool {
 public:
  static constexpr std::size_t payload_bytes = std::size_t{64} << 10;
  static constexpr std::size_t block_bytes = slot_head_bytes + payload_bytes;
  static constexpr std::size_t blocks = 16;
  static constexpr std::size_t cell_bytes = 256, cells = 64;
  static_assert(cell_bytes >= control_bytes);
  static constexpr std::size_t bytes = blocks * block_bytes + cells * cell_bytes;

  static constexpr int none = -1;
  // A piece of the pool.
  struct Piece {
    int number = none;
    std::byte* memory = nullptr;
  };

  // Throws Error(system) when the memory cannot be registered.
  explicit SendPool(const std::shared_ptr<Devices>& devices);
  const Keys& keys() const noexcept { return region_.keys(); }
  std::size_t free_blocks() const noexcept { return free_blocks_.size(); }
  Piece take_block() noexcept { return take(free_blocks_); }
  Piece take_cell() noexcept { return take(free_cells_); }
  void give_back(int number) noexcept;

 private:
  Piece take(std::vector<int>& free) noexcept;
  std::byte* at(int number) const noexcept;

  const base::Pages pages_;  // whole: a page that a device has must hold nothing else
  const MemoryRegion region_;
  std::vector<int> free_blocks_, free_cells_;  // cells have the numbers after those of blocks
};

}  // namespace rondo::rdma

// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/send_pool.h"

namespace rondo::rdma {

SendPool::SendPool(const std::shared_ptr<Devices>& devices)
    : pages_(bytes), region_(devices, pages_.memory(), IBV_ACCESS_LOCAL_WRITE) {
  free_blocks_.reserve(blocks);
  free_cells_.reserve(cells);
  for (std::size_t i = 0; i < blocks; ++i) free_blocks_.push_back(static_cast<int>(i));
  for (std::size_t i = 0; i < cells; ++i) free_cells_.push_back(static_cast<int>(blocks + i));
}

SendPool::Piece SendPool::take(std::vector<int>& free) noexcept {
  if (free.empty()) return {};
  const int number = free.back();
  free.pop_back();
  return {number, at(number)};
}

std::byte* SendPool::at(int number) const noexcept {
  const auto index = static_cast<std::size_t>(number);
  return pages_.memory().data() + (index < blocks
                                       ? index * block_bytes
                                       : blocks * block_bytes + (index - blocks) * cell_bytes);
}

void SendPool::give_back(int number) noexcept {
  if (number < 0) return;
  (static_cast<std::size_t>(number) < blocks ? free_blocks_ : free_cells_).push_back(number);
}

}  // namespace rondo::rdma

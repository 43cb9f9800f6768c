// SPDX-License-Identifier: Apache-2.0
#include "grad/storage.h"

namespace rondo::grad {

Storage::Storage(Communicator& communicator, int device, const GradientLayout& layout,
                 std::optional<DType> wire)
    : device_(device) {
  for (const Arena& arena : layout.arenas) {
    Block& block = blocks_.emplace_back();
    block.type = block.wire_type = arena.type;
    block.bytes = arena.bytes;
    block.gradients = communicator.allocate(arena.bytes, device);
    if (!wire || arena.type != DType::f32 || arena.bytes == 0) continue;
    block.wire_type = *wire;
    block.wire = communicator.allocate(arena.bytes / size_of(arena.type) * size_of(*wire), device);
  }
}

std::byte* Storage::gradients(std::size_t arena) const noexcept {
  return static_cast<std::byte*>(blocks_[arena].gradients.data());
}

Buffer Storage::travelling(const GradientLayout& layout, std::size_t bucket) const noexcept {
  const BucketRange& range = layout.buckets[bucket];
  const Block& block = blocks_[range.arena];
  const std::size_t first = range.offset / size_of(block.type),
                    count = range.bytes / size_of(block.type);
  const Memory& memory = has_wire(range.arena) ? block.wire : block.gradients;
  return {static_cast<std::byte*>(memory.data()) + first * size_of(block.wire_type), count,
          block.wire_type, device_};
}

std::byte* Storage::travelling_at(const GradientLayout& layout, std::size_t bucket,
                                  std::size_t offset) const noexcept {
  const BucketRange& range = layout.buckets[bucket];
  const Block& block = blocks_[range.arena];
  return static_cast<std::byte*>(travelling(layout, bucket).data) +
         (offset - range.offset) / size_of(block.type) * size_of(block.wire_type);
}

}  // namespace rondo::grad

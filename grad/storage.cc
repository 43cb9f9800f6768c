// SPDX-License-Identifier: Apache-2.0
#include "grad/storage.h"

#include <cstring>

namespace rondo::grad {

Storage::Storage(Communicator& communicator, const GradientLayout& layout,
                 std::optional<DType> wire, bool residuals) {
  for (const Arena& arena : layout.arenas) {
    Block& block = blocks_.emplace_back();
    block.type = block.wire_type = arena.type;
    block.bytes = arena.bytes;
    block.gradients = communicator.allocate(arena.bytes);
    if (!wire || arena.type != DType::f32 || arena.bytes == 0) continue;
    block.wire_type = *wire;
    block.wire = communicator.allocate(arena.bytes / size_of(arena.type) * size_of(*wire));
    if (residuals) block.residual = Memory(arena.bytes);
  }
}

std::byte* Storage::gradients(std::size_t arena) const noexcept {
  return static_cast<std::byte*>(blocks_[arena].gradients.data());
}

std::byte* Storage::saved(std::size_t arena) const noexcept {
  return static_cast<std::byte*>(blocks_[arena].saved.data());
}

Buffer Storage::travelling(const GradientLayout& layout, std::size_t bucket) const noexcept {
  const BucketRange& range = layout.buckets[bucket];
  const Block& block = blocks_[range.arena];
  const std::size_t first = range.offset / size_of(block.type),
                    count = range.bytes / size_of(block.type);
  const Memory& memory = has_wire(range.arena) ? block.wire : block.gradients;
  return {static_cast<std::byte*>(memory.data()) + first * size_of(block.wire_type), count,
          block.wire_type};
}

float* Storage::residual(std::size_t arena, std::size_t offset) const noexcept {
  float* const residuals = static_cast<float*>(blocks_[arena].residual.data());
  return residuals == nullptr ? nullptr : residuals + offset / sizeof(float);
}

// Pages that are never written cost nothing.
void Storage::make_room_to_save() {
  for (Block& block : blocks_)
    if (block.saved.data() == nullptr && !block.wire.data()) block.saved = Memory(block.bytes);
}

void Storage::zero() {
  for (const Block& block : blocks_)
    if (block.bytes != 0) std::memset(block.gradients.data(), 0, block.bytes);
}

}  // namespace rondo::grad

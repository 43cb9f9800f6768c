// SPDX-License-Identifier: Apache-2.0
#include "grad/storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rondo {

Storage::Storage(Communicator& communicator, const GradientLayout& layout, std::optional<DType> wire,
                 bool residuals) {
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
  const std::size_t first = range.offset / size_of(block.type), count = range.bytes / size_of(block.type);
  const Memory& memory = has_wire(range.arena) ? block.wire : block.gradients;
  return {static_cast<std::byte*>(memory.data()) + first * size_of(block.wire_type), count, block.wire_type};
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

// Through a copy, so that the arenas stay what all transports already reach.
void Storage::rearrange(const GradientLayout& from, const GradientLayout& to) {
  std::vector<Block> blocks(blocks_.size());
  for (std::size_t old = 0; old < blocks_.size(); ++old) {
    const auto same_type = [&](const Arena& arena) { return arena.type == blocks_[old].type; };
    const auto now = static_cast<std::size_t>(std::find_if(to.arenas.begin(), to.arenas.end(), same_type) -
                                              to.arenas.begin());
    for (Memory* memory : {&blocks_[old].gradients, &blocks_[old].residual}) {
      if (memory->data() == nullptr) continue;
      const Memory copy(blocks_[old].bytes);
      std::memcpy(copy.data(), memory->data(), blocks_[old].bytes);
      for (std::size_t parameter = 0; parameter < to.places.size(); ++parameter) {
        const GradientPlace& before = from.places[parameter];
        if (before.arena == old && before.bytes != 0)
          std::memcpy(static_cast<std::byte*>(memory->data()) + to.places[parameter].offset,
                      static_cast<const std::byte*>(copy.data()) + before.offset, before.bytes);
      }
    }
    blocks[now] = std::move(blocks_[old]);
  }
  blocks_ = std::move(blocks);
}

}  // namespace rondo

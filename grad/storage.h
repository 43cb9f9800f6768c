// SPDX-License-Identifier: Apache-2.0
//
// The memory behind a layout, of the host or of a GPU. It never moves, so views of gradients stay
// valid. Passes (passes.h) read and write it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <rondo/communicator.h>

#include "grad/layout.h"

namespace rondo::grad {

// Owns the arenas of gradients, and beside them the arenas in the wire type.
//
// Threads: thread-bound; accessors may be called by any thread, at once. Locks: none.
// Failure: the constructor throws when there is no memory.
class Storage {
 public:
  // device: of all memory, as Buffer::device. With a wire type, gradients of f32 get a second arena
  // of that type.
  Storage(Communicator& communicator, int device, const GradientLayout& layout,
          std::optional<DType> wire);

  int device() const noexcept { return device_; }
  std::byte* gradients(std::size_t arena) const noexcept;
  // The bytes of a bucket that travel: the gradients themselves, or their copy in the wire type.
  Buffer travelling(const GradientLayout& layout, std::size_t bucket) const noexcept;
  // Where that has what belongs to byte `offset` of the arena.
  std::byte* travelling_at(const GradientLayout& layout, std::size_t bucket,
                           std::size_t offset) const noexcept;
  bool has_wire(std::size_t arena) const noexcept { return blocks_[arena].wire.data() != nullptr; }

 private:
  struct Block {
    DType type = DType::f32, wire_type = DType::f32;
    std::size_t bytes = 0;
    Memory gradients, wire;
  };
  int device_;
  std::vector<Block> blocks_;  // by arena
};

}  // namespace rondo::grad

// SPDX-License-Identifier: Apache-2.0
//
// The memory behind a layout: arenas of gradients, and what options and steps need beside them. It
// never moves, so views of gradients stay valid.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <rondo/communicator.h>

#include "grad/layout.h"

namespace rondo::grad {

class Storage {
 public:
  // Gradients of f32 get a second arena in the wire type when there is one, and with `residuals`
  // one for what rounding loses.
  Storage(Communicator& communicator, const GradientLayout& layout, std::optional<DType> wire,
          bool residuals);

  std::byte* gradients(std::size_t arena) const noexcept;
  // What travels of a bucket: the gradients themselves, or their wire form.
  Buffer travelling(const GradientLayout& layout, std::size_t bucket) const noexcept;
  bool has_wire(std::size_t arena) const noexcept { return blocks_[arena].wire.data() != nullptr; }
  // Null without error feedback.
  float* residual(std::size_t arena, std::size_t offset) const noexcept;

  // Memory for the former contents of gradients that are overwritten and may have to come back;
  // from this call on.
  void make_room_to_save();
  std::byte* saved(std::size_t arena) const noexcept;

  void zero();

 private:
  struct Block {
    DType type = DType::f32, wire_type = DType::f32;
    std::size_t bytes = 0;
    Memory gradients, wire, residual, saved;
  };
  std::vector<Block> blocks_;  // by arena
};

}  // namespace rondo::grad

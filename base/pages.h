// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/own_descriptors.h"

namespace rondo::base {

// Zeroed pages of this process. They hold nothing else, so they suit memory that belongs to a
// device: a forked child writes to no such page. A child's copy of this object leaves them alone.
// Reentrant.
class Pages {
 public:
  explicit Pages(std::size_t bytes);  // Throws Error(system).
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::span<std::byte> memory() const noexcept { return memory_; }
  // The memory goes back to the system, the addresses stay. They read zero afterwards.
  void discard() const noexcept;

 private:
  std::span<std::byte> memory_;
  const unsigned generation_ = process_generation();
};

}  // namespace rondo::base

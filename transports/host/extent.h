// SPDX-License-Identifier: Apache-2.0
//
// The layout of memory from Communicator::allocate. A rank has one memory file for all of it. The
// file grows by extents and never shrinks; each extent is twice as large as the one before. The
// others map an extent once, as a whole, and keep the mapping. So later allocations in it need no
// message and no descriptor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo::host {

class Extent {
 public:
  // Extents have 64 MiB to 32 TiB. Pages that nobody has touched cost nothing.
  static constexpr std::uint32_t count = 20;

  explicit constexpr Extent(std::uint32_t index) noexcept : index_(index) {}
  constexpr std::size_t bytes() const noexcept { return first_bytes << index_; }
  constexpr std::size_t offset() const noexcept { return bytes() - first_bytes; }
  constexpr std::size_t end() const noexcept { return offset() + bytes(); }
  // Its bit in a mask of extents.
  constexpr std::uint32_t bit() const noexcept { return std::uint32_t{1} << index_; }

 private:
  static constexpr std::size_t first_bytes = std::size_t{64} << 20;
  std::uint32_t index_;
};

}  // namespace rondo::host

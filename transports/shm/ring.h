// SPDX-License-Identifier: Apache-2.0
//
// A ring holds frames, one after the other.
//   frame = header payload                    ; of at most eager_bytes
//         | header place payload              ; larger; the place is nowhere
//         | header place                      ; larger; the payload lies at the place
// Both ends know the size of the payload, so both know whether a place follows the header. Each
// part begins at a multiple of ring_unit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transports/transport.h"

namespace rondo::shm {

inline constexpr std::size_t ring_unit = 64;
static_assert(transports::frame_header_bytes == ring_unit);
constexpr std::uint64_t whole_units(std::uint64_t bytes) noexcept {
  return (bytes + ring_unit - 1) / ring_unit * ring_unit;
}

constexpr bool has_place(std::size_t payload_bytes) noexcept {
  return payload_bytes > transports::eager_bytes;
}

// Where the payload of a large frame lies in the memory that its sender has allocated. Nowhere: it
// follows in the ring.
struct PayloadPlace {
  transports::WindowPlace window;
  std::array<std::byte, ring_unit - sizeof(transports::WindowPlace)> reserved{};
};
static_assert(sizeof(PayloadPlace) == ring_unit);

}  // namespace rondo::shm

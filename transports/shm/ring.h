// SPDX-License-Identifier: Apache-2.0
//
// A ring holds frames, one after the other.
//   frame  = header payload                    ; of at most eager_bytes
//          | header place payload              ; larger; the place is nowhere
//          | header place                      ; larger; the payload lies at the place
//   header = first word*                       ; the words in which it differs from the header
//                                              ; before it on this link (of zeros at first)
//   first  = header_mark | mask                ; which words follow, the lowest bit first
// Both ends know the size of the payload, so both know whether a place follows the header. Each
// part begins at a multiple of ring_unit. Two headers of small messages share a cache line.
//
// The first word says that the header has come, with the place. The sender stores it after what it
// announces. Before that, or before it counts the last part of a payload, it has stored 0 in the
// word where the header after the frame begins. So a receiver that looks only there sees each
// header, and a small message costs one cache line that one rank writes and the other reads. A
// payload of at most whole_bytes comes with its header; of a larger one SegmentPair::produced says
// how much has come. The ring keeps one unit free for the word after the last frame.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "transports/transport.h"

namespace rondo::shm {

inline constexpr std::size_t ring_unit = 32;
constexpr std::uint64_t whole_units(std::uint64_t bytes) noexcept {
  return (bytes + ring_unit - 1) / ring_unit * ring_unit;
}

// Where the byte of this number lies. The size of a ring is a power of two: a division would take
// longer than the rest of a small message's send.
constexpr std::size_t in_ring(std::uint64_t byte, std::size_t ring_bytes) noexcept {
  return static_cast<std::size_t>(byte) & (ring_bytes - 1);
}

// A larger payload is worth the counter that tells of its first part before the last is copied.
inline constexpr std::size_t whole_bytes = std::size_t{4} << 10;

using RingWord = std::atomic<std::uint64_t>;
static_assert(sizeof(RingWord) == 8 && RingWord::is_always_lock_free);
inline RingWord& first_word(std::byte* unit) noexcept {
  return *reinterpret_cast<RingWord*>(unit);
}
inline const RingWord& first_word(const std::byte* unit) noexcept {
  return *reinterpret_cast<const RingWord*>(unit);
}

// Which words of a header are in the ring, by bits.
inline constexpr std::size_t header_words = transports::frame_header_bytes / sizeof(RingWord);
inline constexpr std::uint64_t every_word = (std::uint64_t{1} << header_words) - 1;
inline constexpr std::uint64_t header_mark = 0x52494e47'00000000;  // with them in the first word
constexpr std::size_t header_bytes(std::uint64_t mask) noexcept {
  return static_cast<std::size_t>(
      whole_units(sizeof(RingWord) * static_cast<std::size_t>(1 + std::popcount(mask))));
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

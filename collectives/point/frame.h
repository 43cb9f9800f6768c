// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include <rondo/types.h>

#include "transports/transport.h"

namespace rondo::point {

// Matches a message from one rank to a receive. space 0: the caller's tags. space 1: the parts of
// all_to_all_v.
struct PointKey {
  std::uint32_t tag = 0;
  std::uint8_t space = 0;
  bool operator==(const PointKey&) const = default;
};
inline constexpr std::uint8_t point_spaces = 2;

enum class PointKind : std::uint8_t {
  message,   // a whole message
  announce,  // a message whose bytes wait for a grant
  grant,     // asks for the bytes of an announced message
  piece,     // some of the bytes of a granted message
  credit,    // only carries `returned`
};
inline constexpr int point_kind_count = 5;

// Messages of at most this size travel in the header.
inline constexpr std::size_t inline_bytes = 16;

// The header of a frame in the lane of messages. The grammar is in frame.cc.
struct PointFrame {
  PointKind kind = PointKind::credit;
  DType type = DType::u8;
  PointKey key;
  std::uint32_t call = 0;      // number of the operation on the rank that sends this frame
  std::uint32_t checksum = 0;  // CRC32C of the payload that follows; 0 when checksums are off
  // Number of the message among all from its sender to its receiver, from 1.
  std::uint64_t message = 0;
  std::uint64_t count = 0;     // elements of the message
  std::uint64_t returned = 0;  // credit that the sender of this frame has given back so far
  std::uint64_t offset = 0;    // of a piece, in bytes
  std::array<std::byte, inline_bytes> content{};  // of a message of at most inline_bytes
};

transports::HeaderBytes encode(const PointFrame& frame) noexcept;
// False when the bytes are no header of this version, or when their CRC is wrong. Then the frame is
// as before.
[[nodiscard]] bool decode(const transports::HeaderBytes& bytes, PointFrame& frame) noexcept;

}  // namespace rondo::point

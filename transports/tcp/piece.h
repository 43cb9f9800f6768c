// SPDX-License-Identifier: Apache-2.0
//
// A frame on a link of several paths is cut into pieces of piece_bytes; the last one is shorter,
// and an empty payload is one empty piece. Each piece goes over a path that has room:
//   connection = hello challenge proof verdict piece*
//   piece      = magic:u32 ("RPIE") index:u32 sequence:u64 header:64 bytes [tag] payload [tag]
// sequence numbers the frames of the link and direction from 0; index numbers the pieces of the
// frame. The place and length of a piece follow from index and the frame's size, which the receiver
// knows: no length is on the wire. Every piece carries the frame's header. So the first piece that
// arrives can be shown, and the others prove that they belong to the same frame. The tags are there
// where both ends agreed on them (docs/reference/wire.md).
//
// The sender begins pieces in the order of (sequence, index) and writes each path's pieces one
// after the other, so on every path they come in that order. The receiver takes a piece only when
// it belongs to the frame that is being received; for a borrowed frame it must also be the next
// piece. Any other piece stays unread in its socket.
//
// This cannot deadlock. The first piece in that order that has not been taken is at the head of its
// path: whatever was written to the path before it comes earlier in the order and has been taken.
// So the receiver can always take it, the path then has room, and a sender that waits for room
// finds it. Each lane has connections of its own, so lanes do not delay each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "transports/transport.h"

namespace rondo::tcp {

inline constexpr std::size_t piece_bytes = std::size_t{64} << 10;
inline constexpr std::size_t piece_prefix_bytes = 16 + transports::frame_header_bytes;
using PiecePrefix = std::array<std::byte, piece_prefix_bytes>;
// How many frames of a link the sender may have begun that the sockets have not taken whole.
inline constexpr std::size_t most_frames_under_way = 8;
// A payload that is never borrowed is one piece.
static_assert(piece_bytes >= transports::eager_bytes);

struct Piece {
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;
  transports::HeaderBytes header{};
};

// Where a piece lies in its payload.
struct PiecePlace {
  std::size_t offset = 0, bytes = 0;
};

constexpr std::size_t pieces_of(std::size_t payload_bytes) noexcept {
  return payload_bytes == 0 ? 1 : (payload_bytes - 1) / piece_bytes + 1;
}

// `index` must be below pieces_of(payload_bytes).
constexpr PiecePlace place_of(std::size_t index, std::size_t payload_bytes) noexcept {
  const std::size_t offset = index * piece_bytes;
  return {offset, std::min(piece_bytes, payload_bytes - offset)};
}

inline constexpr std::uint32_t piece_magic = 0x45495052;  // "RPIE"

inline PiecePrefix encode(const Piece& piece) noexcept {
  PiecePrefix bytes;
  base::store_little(bytes.data(), piece_magic);
  base::store_little(bytes.data() + 4, piece.index);
  base::store_little(bytes.data() + 8, piece.sequence);
  std::ranges::copy(piece.header, bytes.begin() + 16);
  return bytes;
}

// No value when the bytes do not begin with the magic of a piece. Nothing else is checked.
inline std::optional<Piece> decode_piece(
    std::span<const std::byte, piece_prefix_bytes> bytes) noexcept {
  if (base::load_little<std::uint32_t>(bytes.data()) != piece_magic) return std::nullopt;
  Piece piece;
  piece.index = base::load_little<std::uint32_t>(bytes.data() + 4);
  piece.sequence = base::load_little<std::uint64_t>(bytes.data() + 8);
  std::ranges::copy(bytes.subspan<16>(), piece.header.begin());
  return piece;
}

}  // namespace rondo::tcp

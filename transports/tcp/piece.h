// SPDX-License-Identifier: Apache-2.0
//
// A frame on a link of several paths is cut into pieces of piece_bytes (the last one shorter, and
// one empty piece for an empty payload), and each piece goes over whichever path has room:
//   connection = hello challenge proof verdict piece*
//   piece      = magic:u32 ("RPIE") index:u32 sequence:u64 header:64 bytes  payload
// sequence numbers the frames of the link and direction from 0; index numbers the pieces of the
// frame. Where a piece belongs and how long it is follows from index and the frame's size, which
// the receiver knows: no length is on the wire. Every piece carries the frame's header, so
// whichever comes first can be shown, and the others prove that they belong to it.
//
// The sender begins pieces in the order of (sequence, index) and writes each path's pieces one
// after the other, so on every path they come in that order. The receiver takes a piece only when
// it belongs to the frame that is being received (and, for a borrowed receive, when it is the
// next); any other stays unread in its socket. That cannot stop for good: of all pieces not yet
// taken, the first in that order is at the head of its path, because whatever was written to the
// path before it comes earlier in the order and has been taken. So the receiver can always take it,
// the path then has room, and a sender that waits for room finds it. Lanes have connections of
// their own and never meet.
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
// Of which the sockets have not taken everything yet.
inline constexpr std::size_t most_frames_under_way = 8;
// A small payload is never cut: it is copied or sent as one.
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

PiecePrefix encode(const Piece& piece) noexcept;
// Nothing when the bytes are no prefix of a piece.
std::optional<Piece> decode_piece(std::span<const std::byte, piece_prefix_bytes> bytes) noexcept;

}  // namespace rondo::tcp

// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/piece.h"

namespace rondo {
namespace {

constexpr std::uint32_t piece_magic = 0x45495052;  // "RPIE"

}  // namespace

PiecePrefix encode(const Piece& piece) noexcept {
  PiecePrefix bytes;
  store_little(bytes.data(), piece_magic);
  store_little(bytes.data() + 4, piece.index);
  store_little(bytes.data() + 8, piece.sequence);
  std::ranges::copy(piece.header, bytes.begin() + 16);
  return bytes;
}

std::optional<Piece> decode_piece(std::span<const std::byte, piece_prefix_bytes> bytes) noexcept {
  if (load_little<std::uint32_t>(bytes.data()) != piece_magic) return std::nullopt;
  Piece piece;
  piece.index = load_little<std::uint32_t>(bytes.data() + 4);
  piece.sequence = load_little<std::uint64_t>(bytes.data() + 8);
  std::ranges::copy(bytes.subspan<16>(), piece.header.begin());
  return piece;
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/piece.h"

namespace rondo::tcp {
namespace {

constexpr std::uint32_t piece_magic = 0x45495052;  // "RPIE"

}  // namespace

PiecePrefix encode(const Piece& piece) noexcept {
  PiecePrefix bytes;
  base::store_little(bytes.data(), piece_magic);
  base::store_little(bytes.data() + 4, piece.index);
  base::store_little(bytes.data() + 8, piece.sequence);
  std::ranges::copy(piece.header, bytes.begin() + 16);
  return bytes;
}

std::optional<Piece> decode_piece(std::span<const std::byte, piece_prefix_bytes> bytes) noexcept {
  if (base::load_little<std::uint32_t>(bytes.data()) != piece_magic) return std::nullopt;
  Piece piece;
  piece.index = base::load_little<std::uint32_t>(bytes.data() + 4);
  piece.sequence = base::load_little<std::uint64_t>(bytes.data() + 8);
  std::ranges::copy(bytes.subspan<16>(), piece.header.begin());
  return piece;
}

}  // namespace rondo::tcp

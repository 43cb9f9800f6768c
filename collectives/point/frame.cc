// SPDX-License-Identifier: Apache-2.0
//
// frame   := header payload                     ; little endian, fixed width
// header  := magic:u32 kind:u8 type:u8 space:u8 reserved:u8 tag:u32 checksum:u32 message:u64
//            count:u64 returned:u64 rest:16 bytes call:u32 crc:u32                     ; 64 bytes
// magic   := 0x31504e52                          ; "RNP1", the digit is the version
// rest    := the message itself, filled up with zeros            ; kind message, at most 16 bytes
//          | offset:u64 reserved:u64                             ; otherwise
// crc     := CRC32C of the 60 bytes before it
// payload := bytes*u8                            ; kind message of more than 16 bytes: all of it;
//                                                ; kind piece: a part; else nothing
#include "collectives/point/frame.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace rondo::point {

namespace {

constexpr std::uint32_t magic = 0x31504e52;
constexpr std::size_t rest_offset = 40, crc_offset = transports::frame_header_bytes - 4;

}  // namespace

transports::HeaderBytes encode(const PointFrame& f) noexcept {
  transports::HeaderBytes bytes{};
  std::byte* to = bytes.data();
  base::store_little(to, magic);
  to[4] = static_cast<std::byte>(f.kind);
  to[5] = static_cast<std::byte>(f.type);
  to[6] = static_cast<std::byte>(f.key.space);
  base::store_little(to + 8, f.key.tag);
  base::store_little(to + 12, f.checksum);
  base::store_little(to + 16, f.message);
  base::store_little(to + 24, f.count);
  base::store_little(to + 32, f.returned);
  if (f.kind == PointKind::message)
    std::copy(f.content.begin(), f.content.end(), to + rest_offset);
  else
    base::store_little(to + rest_offset, f.offset);
  base::store_little(to + 56, f.call);
  base::store_little(to + crc_offset, base::crc32c(std::span(bytes).first(crc_offset)));
  return bytes;
}

std::optional<PointFrame> decode_point(const transports::HeaderBytes& bytes) noexcept {
  const std::byte* from = bytes.data();
  if (base::load_little<std::uint32_t>(from) != magic) return std::nullopt;
  if (base::load_little<std::uint32_t>(from + crc_offset) !=
      base::crc32c(std::span(bytes).first(crc_offset)))
    return std::nullopt;
  const auto kind = std::to_integer<int>(from[4]), type = std::to_integer<int>(from[5]);
  PointFrame f;
  f.key.space = std::to_integer<std::uint8_t>(from[6]);
  if (kind >= point_kind_count || type >= dtype_count || f.key.space >= point_spaces)
    return std::nullopt;
  f.kind = static_cast<PointKind>(kind);
  f.type = static_cast<DType>(type);
  f.key.tag = base::load_little<std::uint32_t>(from + 8);
  f.checksum = base::load_little<std::uint32_t>(from + 12);
  f.message = base::load_little<std::uint64_t>(from + 16);
  f.count = base::load_little<std::uint64_t>(from + 24);
  f.returned = base::load_little<std::uint64_t>(from + 32);
  if (f.kind == PointKind::message)
    std::copy_n(from + rest_offset, inline_bytes, f.content.begin());
  else
    f.offset = base::load_little<std::uint64_t>(from + rest_offset);
  f.call = base::load_little<std::uint32_t>(from + 56);
  return f;
}

}  // namespace rondo::point

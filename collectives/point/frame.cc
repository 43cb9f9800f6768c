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

#include <cstring>
#include <span>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace rondo::point {

namespace {

constexpr std::uint32_t magic = 0x31504e52;
constexpr std::size_t rest_offset = 40, crc_offset = transports::frame_header_bytes - 4;

}  // namespace

// Stores and loads whole words of 8 bytes. A load of a word that was just stored in parts would
// wait until these have left the processor's store buffer.
transports::HeaderBytes encode(const PointFrame& f) noexcept {
  transports::HeaderBytes bytes;
  const auto store = [&](std::size_t word, std::uint64_t value) {
    base::store_little(bytes.data() + 8 * word, value);
  };
  store(0, magic | std::uint64_t(f.kind) << 32 | std::uint64_t(f.type) << 40 |
               std::uint64_t{f.key.space} << 48);
  store(1, f.key.tag | std::uint64_t{f.checksum} << 32);
  store(2, f.message);
  store(3, f.count);
  store(4, f.returned);
  if (f.kind == PointKind::message) {
    std::memcpy(bytes.data() + rest_offset, f.content.data(), 8);
    std::memcpy(bytes.data() + rest_offset + 8, f.content.data() + 8, 8);
  } else {
    store(5, f.offset);
    store(6, 0);
  }
  store(7, f.call);
  const std::uint32_t crc = base::crc32c(std::span(bytes).first(crc_offset));
  store(7, f.call | std::uint64_t{crc} << 32);
  return bytes;
}

bool decode(const transports::HeaderBytes& bytes, PointFrame& f) noexcept {
  const auto load = [&](std::size_t word) {
    return base::load_little<std::uint64_t>(bytes.data() + 8 * word);
  };
  const std::uint64_t first = load(0), last = load(7);
  if (static_cast<std::uint32_t>(first) != magic ||
      last >> 32 != base::crc32c(std::span(bytes).first(crc_offset)))
    return false;
  const auto kind = static_cast<std::uint8_t>(first >> 32);
  const auto type = static_cast<std::uint8_t>(first >> 40);
  const auto space = static_cast<std::uint8_t>(first >> 48);
  if (kind >= point_kind_count || type >= dtype_count || space >= point_spaces) return false;
  f.kind = static_cast<PointKind>(kind);
  f.type = static_cast<DType>(type);
  f.key = {static_cast<std::uint32_t>(load(1)), space};
  f.call = static_cast<std::uint32_t>(last);
  f.checksum = static_cast<std::uint32_t>(load(1) >> 32);
  f.message = load(2);
  f.count = load(3);
  f.returned = load(4);
  const bool message = f.kind == PointKind::message;
  f.offset = message ? 0 : load(5);
  f.content = {};
  if (message) std::memcpy(f.content.data(), bytes.data() + rest_offset, inline_bytes);
  return true;
}

}  // namespace rondo::point

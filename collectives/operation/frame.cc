// SPDX-License-Identifier: Apache-2.0
//
// frame   := header payload                     ; little endian, fixed width
// header  := magic:u32 operation:u8 type:u8 op:u8 algorithm:u8 number:u64 count:u64 root:u32
//            segment:u16 frame:u16 checksum:u32 input_scale:u64 scale:u64 plan:u64 crc:u32  ; 64
//            bytes
// magic   := 0x33464e52                          ; "RNF3", the digit is the version
// type    := of the elements; bit 7: the sender's buffers are in device memory
// segment, frame := modulo 2^16: the receiver knows which frame comes next
// input_scale := bits of an IEEE f64: what the sender's input is multiplied by where it is loaded;
//            1 except in sums and means of floats
// scale   := bits of an IEEE f64
// plan    := a hash of what else must be the same (Signature::plan)
// crc     := CRC32C of the 60 bytes before it
// payload := u8*                            ; elements in the byte order of a little-endian machine
#include "collectives/operation/frame.h"

#include <bit>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace rondo::operation {

namespace {

constexpr std::uint32_t magic = 0x33464e52;
constexpr std::byte device_bit{0x80};
constexpr std::size_t crc_offset = transports::frame_header_bytes - 4;

}  // namespace

transports::HeaderBytes encode(const Frame& f) noexcept {
  transports::HeaderBytes bytes;
  std::byte* to = bytes.data();
  const schedules::Signature& s = f.signature;
  base::store_little(to, magic);
  to[4] = static_cast<std::byte>(s.operation);
  to[5] = static_cast<std::byte>(s.type) | (s.on_device ? device_bit : std::byte{});
  to[6] = static_cast<std::byte>(s.op);
  to[7] = static_cast<std::byte>(s.algorithm);
  base::store_little(to + 8, f.number);
  base::store_little(to + 16, s.count);
  base::store_little(to + 24, s.root);
  base::store_little(to + 28, f.segment);
  base::store_little(to + 30, f.frame);
  base::store_little(to + 32, f.checksum);
  base::store_little(to + 36, std::bit_cast<std::uint64_t>(f.input_scale));
  base::store_little(to + 44, std::bit_cast<std::uint64_t>(s.scale));
  base::store_little(to + 52, s.plan);
  seal(bytes);
  return bytes;
}

void seal(transports::HeaderBytes& bytes) noexcept {
  base::store_little(bytes.data() + crc_offset, base::crc32c(std::span(bytes).first(crc_offset)));
}

std::optional<Frame> decode(const transports::HeaderBytes& bytes) noexcept {
  const std::byte* from = bytes.data();
  if (base::load_little<std::uint32_t>(from) != magic) return std::nullopt;
  if (base::load_little<std::uint32_t>(from + crc_offset) !=
      base::crc32c(std::span(bytes).first(crc_offset)))
    return std::nullopt;
  const auto operation = std::to_integer<int>(from[4]),
             type = std::to_integer<int>(from[5] & ~device_bit);
  const auto op = std::to_integer<int>(from[6]), algorithm = std::to_integer<int>(from[7]);
  if (operation >= collective_count || type >= dtype_count || op >= reduce_op_count ||
      algorithm >= schedules::algorithm_count)
    return std::nullopt;
  Frame f;
  f.signature.operation = static_cast<Collective>(operation);
  f.signature.type = static_cast<DType>(type);
  f.signature.on_device = (from[5] & device_bit) != std::byte{};
  f.signature.op = static_cast<ReduceOp>(op);
  f.signature.algorithm = static_cast<schedules::Algorithm>(algorithm);
  f.number = base::load_little<std::uint64_t>(from + 8);
  f.signature.count = base::load_little<std::uint64_t>(from + 16);
  f.signature.root = base::load_little<std::uint32_t>(from + 24);
  f.segment = base::load_little<std::uint16_t>(from + 28);
  f.frame = base::load_little<std::uint16_t>(from + 30);
  f.checksum = base::load_little<std::uint32_t>(from + 32);
  f.input_scale = std::bit_cast<double>(base::load_little<std::uint64_t>(from + 36));
  f.signature.scale = std::bit_cast<double>(base::load_little<std::uint64_t>(from + 44));
  f.signature.plan = base::load_little<std::uint64_t>(from + 52);
  if (f.input_scale != 1 && !(schedules::sums_floats(f.signature) &&
                              schedules::is_input_scale(f.signature.type, f.input_scale)))
    return std::nullopt;
  return f;
}

}  // namespace rondo::operation

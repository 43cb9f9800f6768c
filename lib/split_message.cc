// SPDX-License-Identifier: Apache-2.0
//
// Little endian:
//
//   wish    := color:i32 key:i32
//   message := kind:u8 code:u8 length:u16 byte*4096   ; `length` bytes count
//   kind    := 0 (nothing to say) | 1 (the announcement of a group's rank 0)
//            | 2 (this rank has failed: code, a value of Errc, and the cause)
#include "lib/split_message.h"

#include <algorithm>

#include "base/bytes.h"

namespace rondo::lib {

namespace {

constexpr std::size_t head_bytes = split_message_bytes - rendezvous::most_announcement_bytes;

bool is_code(int code) noexcept {
  return code >= static_cast<int>(Errc::invalid_argument) && code <= static_cast<int>(Errc::system);
}

}  // namespace

transports::Blob encode(const SplitWish& wish) {
  transports::Blob bytes(split_wish_bytes);
  base::store_little(bytes.data(), static_cast<std::uint32_t>(wish.color));
  base::store_little(bytes.data() + 4, static_cast<std::uint32_t>(wish.key));
  return bytes;
}

SplitWish decode_split_wish(std::span<const std::byte, split_wish_bytes> bytes) noexcept {
  return {static_cast<int>(base::load_little<std::uint32_t>(bytes.data())),
          static_cast<int>(base::load_little<std::uint32_t>(bytes.data() + 4))};
}

transports::Blob encode(const SplitMessage& message) {
  transports::Blob bytes(split_message_bytes);
  const std::size_t length = std::min(message.text.size(), rendezvous::most_announcement_bytes);
  bytes[0] = static_cast<std::byte>(message.kind);
  bytes[1] = static_cast<std::byte>(message.code);
  base::store_little(bytes.data() + 2, static_cast<std::uint16_t>(length));
  std::copy_n(reinterpret_cast<const std::byte*>(message.text.data()), length,
              bytes.begin() + head_bytes);
  return bytes;
}

std::optional<SplitMessage> decode_split_message(
    std::span<const std::byte, split_message_bytes> bytes) {
  const auto kind = std::to_integer<int>(bytes[0]), code = std::to_integer<int>(bytes[1]);
  const std::size_t length = base::load_little<std::uint16_t>(bytes.data() + 2);
  const bool failed = kind == static_cast<int>(SplitMessage::Kind::failure);
  if (kind > static_cast<int>(SplitMessage::Kind::failure) || (failed && !is_code(code)) ||
      length > rendezvous::most_announcement_bytes)
    return std::nullopt;
  return SplitMessage{static_cast<SplitMessage::Kind>(kind),
                      static_cast<Errc>(code),
                      {reinterpret_cast<const char*>(bytes.data() + head_bytes), length}};
}

}  // namespace rondo::lib

// SPDX-License-Identifier: Apache-2.0
//
// Lists what the ranks of a communicator tell each other when they split. split_message.cc has the
// grammar. The bytes come from other ranks: every length and code is checked. Thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <rondo/error.h>

#include "lib/rendezvous/announcement.h"
#include "transports/transport.h"

namespace rondo::lib {

// Which group a rank wants, and its place among the ranks of that group.
struct SplitWish {
  int color = 0;  // negative: no group
  int key = 0;
};
inline constexpr std::size_t split_wish_bytes = 8;

transports::Blob encode(const SplitWish& wish);
SplitWish decode_split_wish(std::span<const std::byte, split_wish_bytes> bytes) noexcept;

struct SplitMessage {
  enum class Kind : std::uint8_t { nothing, announcement, failure };
  Kind kind = Kind::nothing;
  Errc code = Errc::rendezvous;  // of a failure
  std::string text;  // the announcement, or the cause; cut at most_announcement_bytes when written
};
inline constexpr std::size_t split_message_bytes = 4 + rendezvous::most_announcement_bytes;

transports::Blob encode(const SplitMessage& message);
// No value if the kind, the length or the code of a failure is not one that a rank writes.
std::optional<SplitMessage> decode_split_message(
    std::span<const std::byte, split_message_bytes> bytes);

}  // namespace rondo::lib

// SPDX-License-Identifier: Apache-2.0
//
// Messages of a split. The input, filled up with zeros, is decoded as a message, and its first
// bytes as a wish. Both must stay the same when they are encoded and decoded again.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "lib/split_message.h"

using namespace rondo;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::array<std::byte, lib::split_message_bytes> bytes{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, bytes.size()),
              bytes.begin());
  const auto wish_bytes = std::span(bytes).first<lib::split_wish_bytes>();
  const transports::Blob wish = lib::encode(lib::decode_split_wish(wish_bytes));
  if (!std::ranges::equal(wish, wish_bytes)) std::abort();

  const auto message = lib::decode_split_message(bytes);
  if (!message) return 0;
  if (message->text.size() > rendezvous::most_announcement_bytes) std::abort();
  const transports::Blob written = lib::encode(*message);
  const auto again =
      lib::decode_split_message(std::span(written).first<lib::split_message_bytes>());
  if (!again || again->kind != message->kind || again->code != message->code ||
      again->text != message->text)
    std::abort();
  return 0;
}

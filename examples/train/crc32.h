// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace train {

// CRC-32 as in zip and PNG (ISO 3309): reflected polynomial 0xedb88320.
inline std::uint32_t crc32(std::string_view bytes) noexcept {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> entries{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
      entries[i] = value;
    }
    return entries;
  }();
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes)
    crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

}  // namespace train

// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace rondo::base {

namespace {

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b] is the effect of byte b followed by k zero bytes, so that eight bytes are folded in
// at once.
constexpr Table make_tables() {
  constexpr std::uint32_t reversed_polynomial = 0x82f63b78u;
  Table tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1u) != 0 ? reversed_polynomial : 0u);
    tables[0][byte] = crc;
  }
  for (std::size_t zeros = 1; zeros < tables.size(); ++zeros) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[zeros - 1][byte];
      tables[zeros][byte] = (before >> 8) ^ tables[0][before & 0xffu];
    }
  }
  return tables;
}

constexpr Table tables = make_tables();

std::uint32_t extend_by_table(std::uint32_t crc, const std::byte* from,
                              std::size_t count) noexcept {
  for (; count >= 8; from += 8, count -= 8) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint32_t mixed =
          std::to_integer<std::uint32_t>(from[i]) ^ (i < 4 ? (crc >> (8 * i)) & 0xffu : 0u);
      next ^= tables[7 - i][mixed];
    }
    crc = next;
  }
  for (; count > 0; ++from, --count)
    crc = (crc >> 8) ^ tables[0][(crc ^ std::to_integer<std::uint32_t>(*from)) & 0xffu];
  return crc;
}

using Extend = std::uint32_t (*)(std::uint32_t crc, const std::byte* from,
                                 std::size_t count) noexcept;

#if defined(__x86_64__)

// The instruction has a latency of three cycles and can start in every cycle. So three neighbouring
// blocks are folded side by side. To join them, the earlier checksum is multiplied by
// x^(8 * block_bytes) modulo the polynomial: four lookups in these tables.
constexpr std::size_t block_bytes = 1024;
using ShiftTable = std::array<std::array<std::uint32_t, 256>, 4>;

constexpr ShiftTable make_shift_tables() {
  constexpr Table steps = make_tables();
  std::array<std::uint32_t, 32> images{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = std::uint32_t{1} << bit;
    for (std::size_t i = 0; i < block_bytes; ++i) crc = (crc >> 8) ^ steps[0][crc & 0xffu];
    images[bit] = crc;
  }
  ShiftTable result{};
  for (std::size_t byte = 0; byte < 4; ++byte)
    for (std::size_t value = 0; value < 256; ++value)
      for (std::size_t bit = 0; bit < 8; ++bit)
        if (((value >> bit) & 1u) != 0) result[byte][value] ^= images[8 * byte + bit];
  return result;
}

constexpr ShiftTable shift_tables = make_shift_tables();

std::uint32_t shift_by_block(std::uint32_t crc) noexcept {
  std::uint32_t result = 0;
  for (std::size_t byte = 0; byte < 4; ++byte)
    result ^= shift_tables[byte][(crc >> (8 * byte)) & 0xffu];
  return result;
}

std::uint64_t word_at(const std::byte* from) noexcept {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

[[gnu::target("sse4.2")]] std::uint32_t extend_by_instruction(std::uint32_t crc,
                                                              const std::byte* from,
                                                              std::size_t count) noexcept {
  for (; count >= 3 * block_bytes; from += 3 * block_bytes, count -= 3 * block_bytes) {
    std::uint64_t first = crc, second = 0, third = 0;
    for (std::size_t i = 0; i < block_bytes; i += 8) {
      first = _mm_crc32_u64(first, word_at(from + i));
      second = _mm_crc32_u64(second, word_at(from + block_bytes + i));
      third = _mm_crc32_u64(third, word_at(from + 2 * block_bytes + i));
    }
    crc = shift_by_block(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
    crc = shift_by_block(crc) ^ static_cast<std::uint32_t>(third);
  }
  std::uint64_t wide = crc;
  for (; count >= 8; from += 8, count -= 8) wide = _mm_crc32_u64(wide, word_at(from));
  crc = static_cast<std::uint32_t>(wide);
  if (count >= 4) {
    std::uint32_t half;
    std::memcpy(&half, from, sizeof half);
    crc = _mm_crc32_u32(crc, half);
    from += 4, count -= 4;
  }
  for (; count > 0; ++from, --count) crc = _mm_crc32_u8(crc, std::to_integer<std::uint8_t>(*from));
  return crc;
}

Extend choose_extend() noexcept {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2") ? extend_by_instruction : extend_by_table;
}

#else

Extend choose_extend() noexcept {
  return extend_by_table;
}

#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
  static const Extend extend = choose_extend();
  return ~extend(~previous, bytes.data(), bytes.size());
}

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
  return ~extend_by_table(~previous, bytes.data(), bytes.size());
}

}  // namespace rondo::base

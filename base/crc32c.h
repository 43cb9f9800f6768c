// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rondo::base {

// CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `bytes`, continuing from `previous`:
// crc32c(b, crc32c(a)) is the checksum of a followed by b. Thread-safe.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0) noexcept;

// Does the same without the processor's CRC instruction.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes,
                              std::uint32_t previous = 0) noexcept;

}  // namespace rondo::base

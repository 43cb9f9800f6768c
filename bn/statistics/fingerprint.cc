// SPDX-License-Identifier: Apache-2.0
#include "bn/statistics/fingerprint.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/mix.h"

namespace rondo::statistics {

namespace {

constexpr std::size_t line_bytes = 64, lines = 64, words = line_bytes / sizeof(std::uint64_t);

// One chain for each word of a line: with base::mix_hash multiplications would wait for each other.
struct Chains {
  std::uint64_t hashes[words] = {};

  void add(const char* line, std::size_t bytes) noexcept {
    std::uint64_t values[words] = {};
    std::memcpy(values, line, bytes);
    for (std::size_t i = 0; i < words; ++i)
      hashes[i] = std::rotl(hashes[i] ^ values[i], 29) * base::golden_step;
  }
  std::uint64_t all() const noexcept {
    std::uint64_t result = 0;
    for (const std::uint64_t hash : hashes) result = base::mix_hash(result, hash);
    return result;
  }
};

}  // namespace

std::uint64_t fingerprint(const void* data, std::size_t bytes) noexcept {
  const char* const from = static_cast<const char*>(data);
  Chains chains;
  if (bytes <= lines * line_bytes) {
    for (std::size_t at = 0; at < bytes; at += line_bytes)
      chains.add(from + at, std::min(bytes - at, line_bytes));
    return chains.all();
  }
  // No overflow: fewer than 2^57 bytes (Guard::input) times 63 fit 64 bits.
  const std::size_t last = bytes - line_bytes;
  for (std::size_t i = 0; i < lines; ++i) chains.add(from + last * i / (lines - 1), line_bytes);
  return chains.all();
}

}  // namespace rondo::statistics

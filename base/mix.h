// SPDX-License-Identifier: Apache-2.0
//
// Hashes and random numbers, the same on every machine. None is safe against an attacker who looks
// for two inputs with the same hash. Reentrant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rondo::base {

// 2^64 divided by the golden ratio, odd: the step of SplitMix64.
inline constexpr std::uint64_t golden_step = 0x9e3779b97f4a7c15;

// Spreads each bit over all: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), with
// the constants of D. Stafford's variant 13 of MurmurHash3's. A bijection.
constexpr std::uint64_t spread_bits(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// A 64-bit hash of a sequence of numbers: mix_hash(mix_hash(1, a), b). Each step is a bijection of
// (hash ^ value).
constexpr std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) noexcept {
  return spread_bits((hash ^ value) + golden_step);
}

// A hash of bytes: FNV-1a, whose upper bits are good; spread_bits() makes the lower ones good too.
constexpr std::uint64_t hash_bytes(std::span<const std::uint8_t> bytes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return spread_bits(hash);
}
inline std::uint64_t hash_text(std::string_view text) noexcept {
  return hash_bytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

// SplitMix64: random numbers from a seed.
class SplitMix64 {
 public:
  constexpr explicit SplitMix64(std::uint64_t seed) noexcept : state_(seed) {}
  constexpr std::uint64_t next() noexcept { return spread_bits(state_ += golden_step); }

 private:
  std::uint64_t state_;
};

}  // namespace rondo::base

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rondo {

// A 64-bit hash of numbers, taken one after the other: mix_hash(mix_hash(1, a), b). For what ranks hold against each other; it is no
// protection against somebody who wants two inputs with one hash. Each step is a bijection of (hash ^ value), the finalizer of
// SplitMix64 (D. Stafford's variant 13 of that of MurmurHash3).
constexpr std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) + 0x9e3779b97f4a7c15;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace rondo

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rondo::base {

// A 64-bit hash of a sequence of numbers: mix_hash(mix_hash(1, a), b). Ranks compare such hashes.
// It does not protect against somebody who looks for two inputs with one hash. Each step is a
// bijection of (hash ^ value), the finalizer of SplitMix64 (D. Stafford's variant 13 of
// MurmurHash3's).
constexpr std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) + 0x9e3779b97f4a7c15;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace rondo::base

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace train {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). It gives
// the same numbers on every machine, which the distributions of <random> do not promise.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0, std::uint64_t index = 0) noexcept
      : state_(seed) {
    state_ = next() ^ stream;
    state_ = next() ^ index;
  }

  std::uint64_t next() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // From low to high, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) noexcept {
    return low + static_cast<std::int64_t>(
                     (next() >> 32) * static_cast<std::uint64_t>(high - low + 1) >> 32);
  }
  // From -1 to 1.
  double symmetric() noexcept { return static_cast<double>(next() >> 11) * 0x1p-52 - 1; }

 private:
  std::uint64_t state_;
};

}  // namespace train

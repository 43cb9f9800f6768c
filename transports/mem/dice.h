// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transports/transport.h"

#include "base/mix.h"

namespace rondo::mem {

// Draws the faults of one directed link: a throw is a pure function of (seed, link,
// purpose, index), so it does not matter when or how often it is asked for.
class MemDice {
 public:
  enum Purpose : std::uint64_t { delay, stall, coin, piece, late };

  MemDice(std::uint64_t seed, int from, int to, transports::Lane lane) noexcept
      : stream_(mix(mix(mix(mix(seed) + static_cast<std::uint64_t>(from)) +
                        static_cast<std::uint64_t>(to)) +
                    static_cast<std::uint64_t>(lane))) {}

  // 0 to sides - 1, nearly even; sides >= 1.
  std::uint64_t roll(Purpose purpose, std::uint64_t index, std::uint64_t sides) const noexcept {
    return mix(mix(stream_ + purpose) + index) % sides;
  }

 private:
  static std::uint64_t mix(std::uint64_t value) noexcept { return base::mix_hash(0, value); }

  std::uint64_t stream_;
};

}  // namespace rondo::mem

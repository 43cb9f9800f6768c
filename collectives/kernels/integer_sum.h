// SPDX-License-Identifier: Apache-2.0
//
// The exact sum of integers, and their mean, on the processor and on GPUs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace rondo::kernels {
namespace {

// A sum may need more bits than its type has. One number of 64 bits holds it, or two for types of
// 64 bits. Up to 2^31 - 1 values fit.
template <class T>
struct IntegerSum {
  static constexpr std::size_t parts = sizeof(T) == 8 ? 2 : 1;
  std::int64_t part[parts] = {};

  RONDO_HD void add(T value) noexcept {
    if constexpr (parts == 1) {
      part[0] += value;
    } else {
      part[0] += static_cast<std::int64_t>(value & 0xffffffff);
      part[1] += static_cast<std::int64_t>(value >> 32);
    }
  }

  // Rounds towards zero. divisor: from 1 to 2^31 - 1.
  RONDO_HD T mean(std::int64_t divisor) const noexcept {
    if constexpr (parts == 1) {
      return static_cast<T>(part[0] / divisor);
    } else {
      // The magnitude of the sum is high * 2^32 + low. It is divided in two steps, as on paper.
      std::int64_t high = part[1] + (part[0] >> 32), low = part[0] & 0xffffffff;
      const bool negative = high < 0;
      if (negative) {
        high = low != 0 ? -high - 1 : -high;
        low = low != 0 ? 0x100000000 - low : 0;
      }
      const auto by = static_cast<std::uint64_t>(divisor), first = static_cast<std::uint64_t>(high);
      const std::uint64_t second = (first % by << 32) + static_cast<std::uint64_t>(low);
      const std::uint64_t magnitude = (first / by << 32) + second / by;
      return static_cast<T>(negative ? 0 - magnitude : magnitude);
    }
  }
};

}  // namespace
}  // namespace rondo::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace train {

// The ten digits, each as the corners of one unbroken line. y points down; corners lie within 45 by
// 80 of the middle.
struct Corner {
  std::int8_t x, y;
};
std::span<const Corner> glyph(int digit) noexcept;

}  // namespace train

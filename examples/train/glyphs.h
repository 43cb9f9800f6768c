// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace train {

// The ten digits as strokes: corners of one line without lifting the pen, y downwards, within 45 by
// 80 of the middle.
struct Corner {
  std::int8_t x, y;
};
std::span<const Corner> glyph(int digit) noexcept;

}  // namespace train

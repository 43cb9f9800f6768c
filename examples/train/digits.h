// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace train {

inline constexpr std::size_t image_side = 20;
inline constexpr std::size_t image_pixels = image_side * image_side;
inline constexpr std::size_t class_count = 10;

// Draws pictures of digits: turned, slanted, scaled, moved, thick or thin, on light or dark ground,
// with a stray line and noise. Picture i depends only on seed, set and i, and is drawn with integer
// arithmetic: every machine draws the same bytes.
class Digits {
 public:
  enum class Set : std::uint8_t { training, test };

  Digits(Set set, std::size_t count, std::uint64_t seed) noexcept
      : set_(set), count_(count), seed_(seed) {}

  std::size_t count() const noexcept { return count_; }
  // Draws picture `index` row by row and returns which digit it shows. Reentrant.
  int draw(std::size_t index, std::span<std::uint8_t, image_pixels> pixels) const;

 private:
  Set set_;
  std::size_t count_;
  std::uint64_t seed_;
};

}  // namespace train
